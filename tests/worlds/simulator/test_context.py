"""A context's clock, its waits, and how it learns of errors."""

from collections import deque
from types import SimpleNamespace

import numpy
import pytest

from course.comm import CommTimeout
from course.worlds.simulator.context import Context, Processor, RankDied
from course.worlds.simulator.log import NOTHING, WAIT


def context(dies_at=float("inf")):
    simulation = SimpleNamespace(ready=deque(), queue=SimpleNamespace(now=3.0), contexts=[])
    return Context(simulation, 2, 2, None, dies_at, None)


def test_a_clock_goes_on_to_the_second_at_which_its_rank_dies():
    mine = context(dies_at=5.0)
    mine.live_until(4.0)
    assert mine.time == 4.0
    with pytest.raises(RankDied):
        mine.wait_until(7.0, NOTHING)
    assert mine.time == 5.0


def test_waits_are_logged_with_their_causes():
    mine = context()
    mine.wait_until(1.5, 8)
    mine.live_until(2.0)
    mine.wait_until(4.0, -4)
    assert numpy.frombuffer(mine.waits, WAIT).tolist() == [(0.0, 1.5, 8), (2.0, 4.0, -4)]


def test_who_waits_learns_of_an_error_now_and_who_computes_when_it_waits_next():
    busy, waiting, error = context(), context(), CommTimeout("late")
    waiting.request = object()
    busy.tell(error), waiting.tell(error)
    assert busy.error is waiting.error is error
    assert not busy.simulation.ready and list(waiting.simulation.ready) == [waiting]
    assert (busy.time, waiting.time, waiting.request) == (0.0, 3.0, None)
    with pytest.raises(CommTimeout, match="late"):
        busy.block(SimpleNamespace(error=None), "anything")
    assert busy.error is None


def test_jitter_is_a_processor_s_own_and_adds_its_mean():
    draws = [Processor(None, 2.0, 0.5, seed) for seed in ("1 0", "1 0", "1 1")]
    one, same, other = ([each.seconds(1.0) for _ in range(4000)] for each in draws)
    assert one == same != other
    assert min(one) > 2.0 and sum(one) / 4000 == pytest.approx(2.0 * 1.5, rel=0.05)
    assert Processor(None, 3.0, 0.0, "").seconds(2.0) == 6.0
