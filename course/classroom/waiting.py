"""How long a step takes where ranks wait for others, and each is late now and then."""

import torch

WORK_S, DELAY_S, SEEDS = 1.0, 0.5, 5


def seconds_a_step(waits, p: int, steps: int = 100) -> float:
    """Seconds of a step of the slowest of `p` ranks, the mean of so many steps and of five seeds.

    In a step each rank works for 1 s and a random delay, exponentially distributed, 0.5 s on
    average; then it waits: `waits(ends [p], step)` says when each rank may go on, from when each
    has ended its work.  Messages take no time.
    """
    took = 0.0
    for seed in range(SEEDS):
        chance = torch.Generator().manual_seed(seed)
        delays = -DELAY_S * (1 - torch.rand(steps, p, generator=chance)).log()
        ends = torch.zeros(p)
        for step in range(steps):
            ends = waits(ends + WORK_S + delays[step], step)
        took += float(ends.max()) / steps
    return took / SEEDS
