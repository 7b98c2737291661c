"""What one step of training sends and how long it takes, on ranks that are imagined.

`second_step` is what a rank finds, `simulated_steps` what all find, and `megabytes_and_ms` what is
told of them.  The second of two steps counts: the first one prepares things.
"""

from typing import NamedTuple

from course import worlds


class Step(NamedTuple):
    """Messages and bytes that a rank sent in a step, and the milliseconds that it took."""

    messages: int
    sent_bytes: int
    ms: float


def second_step(comm, step) -> Step:
    """What this rank finds in the second of two calls of `step()`."""
    for _ in range(2):
        messages, sent, start = comm.meter.sent_messages, comm.meter.sent_bytes, comm.clock()
        step()
    ms = 1e3 * (comm.clock() - start)
    return Step(comm.meter.sent_messages - messages, comm.meter.sent_bytes - sent, ms)


def simulated_steps(ranks, program, *args, cluster) -> list[Step]:
    """What each of so many ranks finds by program(comm, *args) on `cluster`, where tensors have
    shapes and no values."""
    world = worlds.simulated(cluster, device="meta")
    return worlds.run(program, ranks, *args, on=world, checked=False)


def megabytes_and_ms(ranks, program, *args, cluster):
    """Of `simulated_steps`: megabytes that rank 0 sends, and milliseconds of the slowest rank."""
    steps = simulated_steps(ranks, program, *args, cluster=cluster)
    return steps[0].sent_bytes / 1e6, max(step.ms for step in steps)
