"""For trainings that are stopped and go on: an optimiser of few lines, and a diary of their steps.

The diary outlives the ranks: rank 0 notes each step that begins, and `starts` reads what each start
has done.  `warned` brings a rank's warnings into the notebook.
"""

import time
import warnings
from pathlib import Path

import torch

ORDINALS = "first", "second", "third", "fourth", "fifth"


class Momentum:
    """Gradient descent with a velocity, which is a part of its state; torch.optim would cost each
    new process a second of imports."""

    def __init__(self, weights, rate=0.1, momentum=0.9):
        self.weights, self.rate, self.momentum = list(weights), rate, momentum
        self.velocity = [torch.zeros_like(w) for w in self.weights]

    @torch.no_grad()
    def step(self):
        """Move all weights by their gradients, which are forgotten."""
        for w, v in zip(self.weights, self.velocity):
            w -= self.rate * v.mul_(self.momentum).add_(w.grad)
            w.grad = None

    def state_dict(self):
        return {"velocity": self.velocity}

    def load_state_dict(self, state):
        self.velocity = state["velocity"]


def note_step(comm, folder, step):
    """Rank 0 notes in `folder` that a step begins now."""
    if comm.rank == 0:
        with open(Path(folder, "diary"), "a") as file:
            print(time.time(), step, file=file)


def starts(folder) -> dict:
    """{"first start": (seconds since the first entry, steps), ...} of the diary in `folder`; a
    start begins where a step is not behind the one before it."""
    lines = [line.split() for line in Path(folder, "diary").read_text().splitlines()]
    first, last, found = float(lines[0][0]), int(lines[0][1]), []
    for moment, step in lines:
        if int(step) <= last:
            found.append(([], []))
        seconds, steps = found[-1]
        seconds.append(float(moment) - first)
        steps.append(last := int(step))
    return {f"{ordinal} start": each for ordinal, each in zip(ORDINALS, found)}


def warned(comm, program, folder, *args) -> tuple:
    """What `program(comm, folder, *args)` returns, and its warnings, without where the folder is.

    Collective, as the program is.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        value = program(comm, folder, *args)
    return value, [str(each.message).replace(str(Path(folder).parent), "...") for each in told]
