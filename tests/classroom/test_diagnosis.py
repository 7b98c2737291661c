"""Exceptions on ranks become a short block: which rank, which line of the learner's, and why."""

import pytest
import torch

from course.classroom import answers
from course.classroom.answers import on_ranks
from course.classroom.diagnosis import told
from course.comm import CommMismatch, PeerLost
from course.worlds import RankError
from tests.classroom.gallery import in_a_cell


def failing(comm):
    if comm.rank == 2:
        return "two" + 2
    return comm.recv(torch.zeros(1), 2)


def beneath_a_library(comm):
    torch.ones(2) @ torch.ones(3)


def circle(comm):
    x = torch.zeros(2)
    comm.recv(x, (comm.rank + 1) % comm.size)


def one_is_busy(comm):
    if comm.rank == 0:
        comm.recv(torch.zeros(1), 1)
    while True:
        pass


def different_lengths(comm):
    if comm.rank == 0:
        comm.send(torch.zeros(3), 1)
    else:
        comm.recv(torch.zeros(4), 0)


def left_waiting(comm):
    if comm.rank == 1:
        comm.recv(torch.zeros(1), 0)


def killed(comm):
    import os
    import signal

    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.recv(torch.zeros(1), 1)


def complaint(function, ranks, monkeypatch, patience_s=5.0):
    monkeypatch.setattr(answers, "PATIENCE_S", patience_s)
    with pytest.raises(RankError) as caught:
        on_ranks(in_a_cell(function), ranks)
    return told(caught.value)


def test_an_exception_names_rank_and_line(monkeypatch):
    assert complaint(failing, 3, monkeypatch) == (
        "your function stopped (on 3 ranks):\n"
        '    rank 2 in failing, line 3 of your cell:  return "two" + 2\n'
        '    TypeError: can only concatenate str (not "int") to str'
    )


def test_a_line_of_the_learners_and_not_of_a_library(monkeypatch):
    said = complaint(beneath_a_library, 1, monkeypatch)
    assert "rank 0 in beneath_a_library, line 2 of your cell:  torch.ones(2)" in said


def test_ranks_that_wait_for_one_another(monkeypatch):
    title, line, *waiting = complaint(circle, 3, monkeypatch, patience_s=1.0).splitlines()
    assert title == "the ranks wait for one another (on 3 ranks):"
    assert " in circle, line 3 of your cell:  comm.recv(x, (comm.rank + 1) % comm.size)" in line
    assert waiting == [
        f"    rank {rank} waits in recv from rank {(rank + 1) % 3} (float32 [2], tag 0)"
        for rank in range(3)
    ]


def test_a_rank_that_still_runs_is_named(monkeypatch):
    said = complaint(one_is_busy, 2, monkeypatch, patience_s=1.0)
    assert "rank 0 waits in recv from rank 1 (float32 [1], tag 0)" in said
    assert "rank 1 still runs, in one_is_busy, line " in said


def test_a_rank_that_was_killed_is_not_one_that_waits(monkeypatch):
    """As one is that takes more memory than there is."""
    assert complaint(killed, 2, monkeypatch) == (
        "a rank was ended before your function returned (on 2 ranks):\n"
        "    rank 1 was ended by SIGKILL before its function had returned (out of memory?)"
    )


@pytest.mark.parametrize(
    ("function", "title", "kind"),
    [
        (different_lengths, "the ranks do not do the same thing (on 2 ranks):", CommMismatch),
        (left_waiting, "a rank waits for one that has finished (on 2 ranks):", PeerLost),
    ],
)
def test_trouble_between_ranks_in_plain_words(function, title, kind, monkeypatch):
    first, line, reason = complaint(function, 2, monkeypatch).splitlines()
    assert first == title
    assert f" in {function.__name__}, line " in line and "of your cell:  comm." in line
    assert "rank 0" in reason and "rank 1" in reason and kind.__name__ not in reason
