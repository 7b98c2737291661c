"""What a step sends is counted in the second one, by every rank."""

import pytest
import torch

from course.classroom.steps import Step, megabytes_and_ms, second_step, simulated_steps
from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, Cable
from course.collectives import all_gather

CLUSTER = one_switch(3, FREE, Cable("slow", 0.25, 1e6, "chosen"))  # two cables: half a second


def unequal(comm):
    """The first step sends a megabyte; the second one two from rank 0, and nothing from the others;
    a third rank has nothing to do."""
    told = []

    def step():
        told.append(None)
        if comm.rank == 1:
            comm.recv(torch.empty(250_000 * len(told), device=comm.device), 0)
        elif comm.rank == 0:
            comm.send(torch.empty(250_000 * len(told), device=comm.device), 1)

    return second_step(comm, step)


def test_the_second_step_counts_and_each_rank_tells_its_own():
    first, second = simulated_steps(2, unequal, cluster=CLUSTER)
    assert isinstance(first, Step)
    assert (first.messages, first.sent_bytes) == (1, 2_000_000)
    assert (second.messages, second.sent_bytes) == (0, 0)
    assert second.ms == pytest.approx(1000 * (0.5 + 2))


def test_bytes_are_rank_0s_and_the_time_is_the_slowest_ranks():
    megabytes, ms = megabytes_and_ms(3, unequal, cluster=CLUSTER)
    assert megabytes == 2
    assert ms == pytest.approx(1000 * (0.5 + 2))


def test_arguments_reach_the_program():
    def sends(comm, count):
        x = torch.empty(count, device=comm.device)
        parts = [torch.empty_like(x) for _ in range(comm.size)]
        return second_step(comm, lambda: all_gather(comm, parts, x))

    assert simulated_steps(2, sends, 500, cluster=CLUSTER)[1].sent_bytes == 2000
