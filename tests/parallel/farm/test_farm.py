"""A farm gives what a loop gives, whoever does it, and whoever is lost meanwhile."""

import contextlib
import math
import os

import pytest
import torch

from course.parallel.farm.farm import STOP, attempt, farm, manage
from course.worlds import RankError, hosts, mpi, processes, run
from tests.parallel.workers import Gone, cut_off
from tests.worlds.netns.test_world import WHY_NOT
from tests.worlds.simulator.clusters import slowly, switched


def squared(argument):
    if argument == 5:
        raise ValueError("five is refused")
    return torch.full((2,), float(argument)) ** 2


def farmed(comm, work, arguments, **knobs):
    return farm(comm, work, arguments if comm.rank == 0 else None, **knobs)


WORLDS = {
    "processes": lambda ranks: None,
    "hosts": lambda ranks: hosts(ranks, rate="1gbit"),
    "mpi": lambda ranks: mpi(),
    "imagined": switched,
}


def required_squares(outcomes, count):
    assert len(outcomes) == count
    for number, outcome in enumerate(outcomes):
        assert outcome.error == ("ValueError: five is refused" if number == 5 else None)
        if number != 5:
            assert outcome.value.tolist() == [number**2] * 2
        assert outcome.ended_s >= outcome.began_s and outcome.lost == ()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 11])
def test_outcomes_are_in_order_and_an_error_is_one_of_them(ranks, count):
    outcomes, *others = run(farmed, ranks, squared, range(count), timeout=5)
    required_squares(outcomes, count)
    assert others == [None] * (ranks - 1)
    assert {outcome.rank for outcome in outcomes} <= set(range(ranks > 1, ranks))


@pytest.mark.parametrize("world", WORLDS)
def test_a_farm_in_every_world(world):
    if world == "hosts" and WHY_NOT:
        pytest.skip(WHY_NOT)
    required_squares(run(farmed, 3, squared, range(11), on=WORLDS[world](3))[0], 11)


def test_the_shortest_task_is_not_behind_the_longest():
    """Tasks of 8, 1, 1, 1 seconds on two imagined workers: one does the first, one all others."""
    on = switched(3, charge=lambda operation, *_: {"sin": 8.0, "cos": 1.0}.get(operation, 0.0))
    work = {0: torch.sin}
    outcomes = run(
        farmed, 3, lambda n: float(work.get(n, torch.cos)(torch.ones(()))), range(4), on=on
    )
    outcomes = outcomes[0]
    assert [outcome.rank for outcome in outcomes] == [1, 2, 2, 2]
    assert outcomes[0].ended_s - outcomes[0].began_s == 8.0


def rounds(comm):
    """What is handed out depends on what came before."""

    def lead(hand_out):
        told = [outcome.value for outcome in hand_out(range(4))]
        return [outcome.value for outcome in hand_out(told[:2] * 3)], hand_out([])

    return manage(comm, lambda x: x + 10, lead)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_manager_hands_out_as_often_as_it_likes(ranks):
    assert run(rounds, ranks)[0] == ([20, 21] * 3, [])


def large(argument):
    return torch.full((300_000,), float(argument))


def test_large_values_and_one_that_cannot_be_sent_back():
    outcomes = run(farmed, 3, large, range(5))[0]
    assert [float(outcome.value.sum()) for outcome in outcomes] == [n * 3e5 for n in range(5)]
    outcomes = run(farmed, 2, lambda n: (x for x in ()) if n else 1, range(2))[0]
    assert outcomes[0].value == 1
    assert outcomes[1].error.startswith("a generator cannot be sent back: ")


def dying(folder, times):
    """Task 3 ends the process that does it, `times` times."""

    def work(number):
        died = len(os.listdir(folder))
        if number == 3 and died < times:
            open(os.path.join(folder, str(died)), "w").close()
            os._exit(3)
        return number

    return work


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_dies_loses_its_task_alone(tmp_path, times):
    with pytest.raises(RankError, match="exited with status 3") as caught:
        run(farmed, 4, dying(tmp_path, times), range(7), on=processes(grace_s=math.inf), timeout=5)
    outcomes = caught.value.values[0]
    assert len(caught.value.failures) == times and set(caught.value.values) | set(
        caught.value.failures
    ) == {0, 1, 2, 3}
    assert len(outcomes[3].lost) == times
    values = [outcome.value for outcome in outcomes]
    if times == 1:
        assert values == list(range(7)) and outcomes[3].rank not in outcomes[3].lost
    else:
        assert values == [0, 1, 2, None, 4, 5, 6]
        told = ", ".join(map(str, sorted(outcomes[3].lost)))
        assert outcomes[3].error == f"ranks {told} were lost at it"


def test_when_all_workers_are_lost_the_manager_works_itself(tmp_path):
    with pytest.raises(RankError) as caught:
        run(farmed, 2, dying(tmp_path, 1), range(5), on=processes(grace_s=math.inf), timeout=5)
    outcomes = caught.value.values[0]
    assert [outcome.value for outcome in outcomes] == list(range(5))
    assert [outcome.rank for outcome in outcomes] == [1, 1, 1, 0, 0]


def seconds(number):
    torch.sin(torch.ones(()))
    return number


@pytest.mark.parametrize("second", [0.0, *(0.5 + step for step in range(14))])
def test_a_worker_that_is_lost_at_any_moment(second):
    """Before, between and amid messages of a second each, and while it works."""
    on = slowly(3, dead={2: second}, charge=lambda name, *_: 1.0 * (name == "sin"))
    with pytest.raises(RankError) as caught:
        run(farmed, 3, seconds, range(4), on=on)
    assert set(caught.value.failures) == {2}
    outcomes = caught.value.values[0]
    assert [outcome.value for outcome in outcomes] == list(range(4))
    assert {lost for outcome in outcomes for lost in outcome.lost} <= {2}


@pytest.mark.parametrize("second", [0.5 + step for step in range(12)])
def test_the_loss_of_the_manager_is_named(second):
    on = slowly(3, dead={0: second}, charge=lambda name, *_: 1.0 * (name == "sin"))
    with pytest.raises(RankError) as caught:
        run(farmed, 3, seconds, range(9), on=on)
    failures = caught.value.failures
    assert set(failures) == {0, 1, 2} and "rank 0 died" in failures[0]
    assert all("rank 0 was lost while" in failures[worker] for worker in (1, 2))


def broken(comm):
    def lead(hand_out):
        hand_out(range(3))
        raise ArithmeticError("the plan is broken")

    return manage(comm, abs, lead)


def test_an_error_of_the_manager_ends_the_workers_too():
    with pytest.raises(RankError, match="rank 0 failed: ArithmeticError: the plan is") as caught:
        run(broken, 3, timeout=5)
    assert set(caught.value.failures) == {0, 1, 2}


def metered(comm):
    farm(comm, abs, [7, 8, 9])
    return comm.meter.sent_messages, comm.meter.sent_bytes


def test_two_messages_a_task_each_way_and_one_to_stop():
    (there, _), (back, nbytes) = run(metered, 2)
    assert there == 2 * 3 + 1 and back == 2 * 3 and nbytes > 3 * 16


def refused(comm):
    farm(comm, abs, [1], attempts=0)


def test_what_cannot_be():
    with pytest.raises(RankError, match="attempts is a whole number, 1 or more, not 0"):
        run(refused, 2)


class Clock:
    rank = 2

    def __init__(self):
        self.times = iter([3.0, 5.0])

    def clock(self):
        return next(self.times)


def test_an_outcome_by_hand():
    assert attempt(Clock(), abs, -4) == (4, None, 2, 3.0, 5.0, ())
    assert attempt(Clock(), abs, "x").error.startswith("TypeError: bad operand type for abs()")
    assert STOP < 0


def cut(comm):
    """Rank 2's lines are cut in the middle of its first task; what the manager makes of it."""

    def work(number):
        if comm.rank == 2:
            cut_off(comm)
        return number

    with contextlib.suppress(Gone):
        return farm(comm, work, range(6))


@pytest.mark.parametrize("checked", [True, False])
def test_real_processes_go_on_without_a_worker_whose_lines_are_cut(checked):
    outcomes = run(cut, 4, checked=checked, timeout=5)[0]
    assert [outcome.value for outcome in outcomes] == list(range(6))
    assert outcomes[1].lost == (2,) and outcomes[1].rank in (1, 3)
