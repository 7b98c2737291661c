"""The program on each node relays what ranks say, to those who know the secret."""

import contextlib
import socket

import psutil
import pytest
import torch

from course.worlds import run, slurm
from course.worlds.slurm.allocation import allocation_for
from tests.worlds.slurm.programs import PATIENCE_S, agents, summed

pytestmark = pytest.mark.usefixtures("at_box")


def prints(comm):
    print(f"here is {comm.rank}")
    return torch.arange(300_000) + comm.rank


def test_prints_and_large_values_come_back(capsys):
    values = run(prints, 4, on=slurm(nodes=2))
    assert all(torch.equal(x, torch.arange(300_000) + rank) for rank, x in enumerate(values))
    assert sorted(capsys.readouterr().out.splitlines()) == [f"[{r}] here is {r}" for r in range(4)]


def test_who_does_not_know_the_secret_is_turned_away(box):
    run(summed, 2, on=slurm(nodes=2))
    [allocation] = allocation_for.programs.values()
    for agent in allocation.agents:
        assert agent.door[0].startswith(box.network)  # on the address of the job's network alone
        stranger = socket.create_connection(agent.door)
        stranger.sendall(bytes(56))
        assert run(summed, 2, on=slurm(nodes=2))[0][3] == 1.0
        stranger.settimeout(PATIENCE_S)
        with stranger, contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    for process in [psutil.Process(), *agents()]:
        assert allocation.secret.hex() not in " ".join(process.cmdline())
        assert allocation.secret.hex() not in str(process.environ())
