"""Ranks that another launcher has started find one another."""

import multiprocessing
import socket
import threading

import pytest
import torch

from course.collectives import all_reduce
from course.comm.errors import CommError
from course.worlds import meeting
from course.worlds.meeting import Meeting

SECRET = b"a secret that all know"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def summed(rank, size, port, found):
    comm = Meeting(rank, size, "127.0.0.1", port, SECRET).join(
        device=None, timeout=60.0, checked=True
    )
    x = torch.full((1000,), float(rank))
    all_reduce(comm, x)
    comm.finish()
    found.put((comm.rank, comm.size, x.unique().item()))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_whoever_comes_first_all_meet(size):
    context, port = multiprocessing.get_context("spawn"), free_port()
    found = context.Queue()
    ranks = [context.Process(target=summed, args=(rank, size, port, found))
             for rank in reversed(range(size))]  # fmt: skip
    for rank in ranks:
        rank.start()
    told = sorted(found.get(timeout=240) for _ in ranks)
    for rank in ranks:
        rank.join()
    assert told == [(rank, size, size * (size - 1) / 2) for rank in range(size)]


def test_without_rank_0_nobody_waits_without_end(monkeypatch):
    monkeypatch.setattr(meeting, "MEET_S", 0.2)
    with pytest.raises(CommError, match="not find rank 0's door: no connection to 127.0.0.1:"):
        Meeting(1, 2, "127.0.0.1", free_port(), SECRET).join()


def test_who_is_turned_away_while_it_says_who_it_is_is_told(monkeypatch):
    def broken(line, thing):
        raise BrokenPipeError

    ours, theirs = socket.socketpair()
    monkeypatch.setattr(meeting, "knock", lambda *where: ours)
    monkeypatch.setattr(meeting, "send", broken)
    with theirs, pytest.raises(CommError, match="rank 0 was lost before rank 1 had heard of all"):
        Meeting(1, 2, "127.0.0.1", free_port(), SECRET).join()


def test_who_has_another_secret_is_not_met(monkeypatch):
    monkeypatch.setattr(meeting, "MEET_S", 1.0)
    port = free_port()
    false = Meeting(1, 2, "127.0.0.1", port, b"another")
    thread = threading.Thread(target=lambda: pytest.raises(CommError, false.join))
    thread.start()
    with pytest.raises(CommError, match="1 connections had not come in 1 s"):
        Meeting(0, 2, "127.0.0.1", port, SECRET).join()
    thread.join()
