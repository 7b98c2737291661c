"""What checks ask of an answer, and the words for what its tensors hold."""

import pytest
import torch

from course.classroom import answers
from course.classroom.answers import EMPTY, check_filled, function, held, number, on_ranks
from course.classroom.problems import Wrong
from course.worlds import RankError


def who(comm, factor):
    x = torch.tensor(factor * comm.rank)
    comm.exchange(x, (comm.rank + 1) % comm.size, x.clone(), (comm.rank - 1) % comm.size)
    return comm.rank, comm.size, comm.node, str(comm.device), comm.checked


def test_an_answer_runs_on_checked_cpu_ranks_and_its_messages_are_seen():
    values, trace = on_ranks(who, 3, 2, nodes=(5, 5, 6))
    assert values == [(0, 3, 5, "cpu", True), (1, 3, 5, "cpu", True), (2, 3, 6, "cpu", True)]
    assert [(message.src, message.dst) for message in trace.messages] == [(0, 1), (1, 2), (2, 0)]


def endless(comm):
    while comm.rank:
        pass
    comm.recv(torch.zeros(1), 1)


@pytest.mark.parametrize("limit", ["PATIENCE_S", "LIMIT_S"])
def test_an_answer_that_waits_or_never_ends_is_ended(monkeypatch, limit):
    monkeypatch.setattr(answers, limit, 0.5)
    with pytest.raises(RankError) as told:
        on_ranks(endless, 2)
    assert told.value.__notes__ == ["on 2 ranks"]


def test_one_rank_is_not_plural():
    with pytest.raises(RankError) as told:
        on_ranks(lambda comm: 1 / 0, 1)
    assert told.value.__notes__ == ["on 1 rank"]


def test_a_function_is_wanted_without_calling_it():
    assert function(abs) is abs
    with pytest.raises(Wrong, match=r"^a function is wanted, without calling it, not 7\.$"):
        function(7)
    with pytest.raises(Wrong, match=r"not '" + 39 * "x" + r"\.$"):
        function(100 * "x")


@pytest.mark.parametrize("answer", [3, "3", 3.0, torch.tensor(3), torch.tensor([[3.0]]), True + 2])
def test_whatever_is_a_number_is_one(answer):
    assert number(answer) == 3.0


@pytest.mark.parametrize("answer", [None, "three", [3], 3 + 0j, abs])
def test_what_is_no_number_is_told(answer):
    with pytest.raises(Wrong, match=r"^a number is wanted, not .*\.$"):
        number(answer)


def test_nan_is_no_number():
    with pytest.raises(Wrong, match=r"^a number is wanted, and nan says that it is none\.$"):
        number(float("nan"))


def test_whose_numbers_a_tensor_holds():
    everyones = [torch.full((3,), float(rank)) for rank in range(3)]
    said = [held(x, 1, everyones) for x in (*everyones, sum(everyones), torch.full((3,), EMPTY))]
    assert said == ["the x of rank 0", "its own x", "the x of rank 2", "a mixture", "nothing yet"]
    half = torch.tensor([EMPTY, 0.0, 0.0])
    assert held(half, 1, everyones) == "a mixture"


def test_an_answer_stands_in_x_and_not_in_what_is_returned():
    x, wanted = torch.zeros(3), torch.ones(3)
    with pytest.raises(Wrong, match=r"^x itself has to change: do not return another tensor\.$"):
        check_filled(x, wanted + 1e-6, wanted)
    with pytest.raises(Wrong, match="do not return another tensor"):
        check_filled(x, (wanted + 1e-6).double(), wanted)
    for unlike in (None, 1.0, wanted[:2], 2 * wanted):  # wrong in another way: not said here
        check_filled(x, unlike, wanted)
    check_filled(wanted.clone(), wanted, wanted)  # both: right
