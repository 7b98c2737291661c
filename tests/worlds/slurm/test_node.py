"""Ranks of one node: where they think they are, and how they reach other nodes."""

import json
import os
import pathlib

import pytest
import torch

from course.collectives import all_reduce
from course.worlds import RankError, run, slurm
from tests.worlds.slurm.programs import FIRST_TWO, full, release

pytestmark = pytest.mark.usefixtures("at_box")


def surroundings(comm):
    return {key: os.environ.get(key) for key in ("SLURM_NODEID", "SLURM_JOB_ID", "OF_THE_NOTEBOOK")}


def test_ranks_see_the_notebook_s_environment_and_their_node_s_slurm(monkeypatch):
    monkeypatch.setenv("OF_THE_NOTEBOOK", "yes")
    found = run(surroundings, 4, on=slurm(nodes=2))
    assert [each["SLURM_NODEID"] for each in found] == ["0", "0", "1", "1"]
    assert {each["OF_THE_NOTEBOOK"] for each in found} == {"yes"}
    assert all(each["SLURM_JOB_ID"].isdecimal() for each in found)


def exchanged(comm, n):
    all_reduce(comm, torch.ones(n))


def test_bytes_between_nodes_cross_the_link(box):
    n = 1 << 20

    def carried():
        ports = json.loads(box.ask("ip", "-n", box.switch, "-json", "-stats", "link"))
        named = [port for port in ports if port["ifname"].startswith("port")]
        return sum(port["stats64"]["tx"]["bytes"] for port in named)

    run(exchanged, 2, n, on=slurm(nodes=2))
    before = carried()
    run(exchanged, 2, n, on=slurm(nodes=2))
    assert 2 * 4 * n <= carried() - before < 2 * 5 * n  # each sends the other its half, twice


def sums(comm):
    x = torch.full((1 << 18,), float(comm.rank))
    all_reduce(comm, x)
    comm.native.all_reduce(x)
    return x[0].item()


def writes(comm):
    with open(pathlib.Path(os.environ["TMPDIR"], "model"), "wb") as file:
        file.write(bytes(1 << 20))


def test_ranks_need_no_room_on_a_node_and_who_writes_there_is_told(box, tmp_path, monkeypatch):
    """Its shared memory, its home and its folder for temporary files are full."""
    release()
    for name in ("TMPDIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with full(box, 2, tmp_path), full(box, 2, "/dev/shm"):
        assert run(sums, 4, on=FIRST_TWO) == [24.0] * 4
        told = "rank 1 on n2 failed: OSError: .Errno 28. No space left on device"
        with pytest.raises(RankError, match=told):
            run(writes, 2, on=FIRST_TWO)
        release()
