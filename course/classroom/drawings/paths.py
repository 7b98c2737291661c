"""Draw and tell losses by step of ways to reduce gradients, each with several seeds.

Of each rank they are {name: [(losses, how far the weights have moved) of each seed]}.
"""

from course.classroom.data_parallel_runs import farthest
from course.classroom.drawings import lines
from course.classroom.scoreboard import spread


def seed_losses(everyones) -> dict:
    """Rank 0's losses {name: [seeds][steps]}."""
    return {name: [losses for losses, _ in seeds] for name, seeds in everyones[0].items()}


def told(everyones) -> str:
    """A line for each way: the losses at the end."""
    steps = {name: len(seeds[0]) for name, seeds in seed_losses(everyones).items()}
    return "\n".join(f"{name:21} loss after {steps[name]} steps, five seeds: {_at_the_end(seeds)}"
                     for name, seeds in seed_losses(everyones).items())  # fmt: skip


def same_path(everyones, one, other) -> bool:
    """Whether two ways have the same losses at all steps of all seeds, up to rounding."""
    losses = seed_losses(everyones)
    pairs = zip(sum(losses[one], []), sum(losses[other], []), strict=True)
    return max(abs(a - b) for a, b in pairs) < 1e-9


def moved_alike(everyones, name) -> bool:
    """Whether the weights of all ranks have moved by the same vector, with the first seed."""
    moved = [ways[name][0][1] for ways in everyones]
    return farthest(moved[0], moved) < 1e-12


def draw(everyones, title):
    """The first seed's losses by step; returns the axes."""
    first = {name: (range(1, len(seeds[0]) + 1), seeds[0])
             for name, seeds in seed_losses(everyones).items()}  # fmt: skip
    return lines.draw(first, title, "step", "loss (validation)", log="y", limits=(0.1, 100))


def _at_the_end(seeds):
    last = [losses[-1] for losses in seeds]
    return "above 10 with every seed" if min(last) > 10 else spread(last)
