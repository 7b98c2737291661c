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


def test_a_rank_that_comes_late_is_not_counted():
    device = Device("an operation a nanosecond", GIGA, float("inf"), float("inf"), "")
    cluster = one_switch(2, device, Cable("none", 0.0, float("inf"), ""))

    def multiply(size):
        return torch.ones(size, size) @ torch.ones(size, size)

    def wait_for_rank_1(comm):
        if comm.rank == 1:
            multiply(100)
            comm.send(torch.ones(1), 0)
        else:
            comm.recv(torch.ones(1), 1)

    def late(comm):
        if comm.rank == 1:
            multiply(200)
        return stopwatch.seconds_from_barrier(comm, wait_for_rank_1)

    seconds = run(late, 2, on=simulated(cluster), checked=False)
    assert seconds == pytest.approx([2e-9 * 100**3] * 2, rel=1e-3)
