import time

import pytest
import torch

from course.classroom import stopwatch
from course.cluster.fabric import one_switch
from course.cluster.hardware import GIGA, Cable, Device
from course.worlds import run, simulated


def test_the_least_of_all_times_counts(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    worked = []
    assert stopwatch.cpu_seconds(lambda: worked.append(1), repeat=3) == 2.0
    assert len(worked) == 3


def test_all_ranks_begin_together_and_each_has_its_own_end():
    device = Device("one operation a nanosecond", GIGA, float("inf"), float("inf"), "")
    cable = Cable("none", 0.0, float("inf"), "")

    def late(comm):
        if comm.rank == 1:
            multiply(comm, 200)
        return stopwatch.seconds_from_barrier(comm, multiply, 100 * (1 + comm.rank))

    def multiply(comm, size):
        return torch.ones(size, size) @ torch.ones(size, size)

    seconds = run(late, 2, on=simulated(one_switch(2, device, cable)), checked=False)
    assert seconds == pytest.approx([2e-9 * 100**3, 2e-9 * 200**3], rel=1e-3)
