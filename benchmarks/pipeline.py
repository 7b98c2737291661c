"""A step of `course`'s pipeline against torch.distributed.pipelining with the same schedule, in the
same ranks; and the bubble of stages that rest instead of computing, against the formula."""

import copy
import statistics
import time

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.parallel.pipeline import (
    Pipeline,
    gpipe,
    interleaved,
    one_forward_one_backward,
    simulate,
    zero_bubble,
)
from course.worlds import hosts

P, MICRO_BATCHES, ROWS, WIDTH, REST_S = 4, 8, 32, 512, 0.05
PLACES = {"one machine": lambda: None, "1 Gb/s": lambda: hosts(P, 1, "1gbit")}
AGAINST = {"GPipe": (gpipe, ScheduleGPipe), "1F1B": (one_forward_one_backward, Schedule1F1B)}
RESTING = {
    "GPipe": gpipe(P, MICRO_BATCHES),
    "1F1B": one_forward_one_backward(P, MICRO_BATCHES),
    "interleaved, 2": interleaved(P, MICRO_BATCHES, 2),
    "zero bubble, H1": zero_bubble(P, MICRO_BATCHES),
}
AS_FAST, AS_PREDICTED = Aim("≥", 1.0), Aim("≤", 1.1)


def measure(turns) -> Table:
    """Rows for each schedule and place against torch's; then steps of stages that rest."""
    rows = [against_torch(name, place, turns) for name in AGAINST for place in PLACES]
    return Table(
        "Steps of a pipeline", [*rows, *map(rested, RESTING, [turns] * len(RESTING))], NOTE
    )


NOTE = f"""float32, {P} stages of 4 linear layers of {WIDTH}, {MICRO_BATCHES} micro-batches of \
{ROWS} rows, plain SGD, unchecked.  ratio = torch.distributed.pipelining's time over gloo / the \
time.  resting = stages that rest for {REST_S * 1e3:g} ms forward and twice as long backward, as \
if a device computed them; there ratio = the time / that of the simulated schedule."""


def against_torch(name, place, turns) -> dict:
    times = race(contestants, P, turns, name, on=PLACES[place]())
    ratio = Ratio.of(times["torch"], times["course"])
    return row(name, f"{P} x {place}", times["course"], ratio, AS_FAST)


def rested(name, turns) -> dict:
    schedule = RESTING[name]
    chunks = schedule.stages / P
    should = simulate(schedule, REST_S / chunks, 2 * REST_S / chunks).seconds
    times = race(resters, P, turns, schedule, chunks)["resting"]
    return row(name, f"{P}, resting", times, Ratio.of(times, [should] * turns), AS_PREDICTED)


def row(name, place, times, ratio, aim) -> dict:
    columns = {"schedule": name, "ranks": place, "ms": f"{1e3 * statistics.median(times):.1f}"}
    return columns | judged(ratio, aim)


def block():
    return nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])


def contestants(comm, name) -> dict:
    """Calls of a step, each with weights of its own."""
    ours, torchs = AGAINST[name]
    mine, x = block(), torch.randn(ROWS * MICRO_BATCHES, WIDTH)
    pipeline = Pipeline({comm.rank: mine}, comm, ours(P, MICRO_BATCHES), nn.functional.mse_loss)
    theirs = copy.deepcopy(mine)
    stage = PipelineStage(theirs, comm.rank, P, comm.device, group=comm.native.group)
    schedule = torchs(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    given = (x,) if comm.rank == 0 else ()
    asked = {"target": x} if comm.rank == P - 1 else {}
    return {
        "course": trained(mine, lambda: pipeline.step(*given, **asked)),
        "torch": trained(theirs, lambda: schedule.step(*given, **asked)),
    }


def trained(module, step):
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)

    def once():
        optimizer.zero_grad()
        step()
        optimizer.step()

    return once


class Rest(torch.autograd.Function):
    """The identity; both ways take their seconds, and no core."""

    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        time.sleep(ctx.backward_s)
        return slope, None, None


class Resting(nn.Module):
    """A part of REST_S forward, as much for what came in, and as much for its weight."""

    def __init__(self, part):
        super().__init__()
        self.part, self.weight = part, nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return Rest.apply(x, self.part, self.part) + Rest.apply(self.weight, 0, self.part)


def resters(comm, schedule, chunks) -> dict:
    net = [Resting(REST_S / chunks) for _ in range(schedule.stages)]
    pipeline = Pipeline(net, comm, schedule, lambda out: out.mean())
    x = torch.zeros(ROWS * MICRO_BATCHES, WIDTH, requires_grad=True)
    return {"resting": lambda: pipeline.step(x)}
