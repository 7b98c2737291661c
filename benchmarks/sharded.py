"""A step with sharded parameters against torch's `fully_shard`, and against DataParallel's, in the
same ranks."""

import statistics

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.parallel.data import DataParallel
from course.parallel.sharded import Sharded
from course.worlds import hosts

UNITS, WIDTH, ROWS = 4, 1024, 64
PLACES = {"one machine": lambda p: None, "1 Gb/s": lambda p: hosts(p, 1, "1gbit")}
AS_FAST, BYTES_BOUND = Aim("≥", 1.0), Aim("≤", 1.5)


def measure(turns) -> Table:
    """Against torch in all places, and against DataParallel where bytes are what takes time."""
    rows = []
    for place, world in PLACES.items():
        for p in (2, 4):
            times = race(contestants, p, turns, on=world(p))
            rows.append(row(place, p, "fully_shard / course", times, "torch", "course", AS_FAST))
            if place != "one machine":
                rows.append(row(place, p, "course / DataParallel", times, "course",
                                "data parallel", BYTES_BOUND))  # fmt: skip
    return Table("Steps of sharded training", rows, NOTE)


NOTE = f"""float32, {UNITS} units of two linear layers of {WIDTH}, {ROWS} rows a rank, plain SGD, \
unchecked; all that torch calls «reshard after forward», so that parameters are gathered twice.  \
Sharded sends 3 model sizes a step and DataParallel 2, which makes 1.5 where bytes are all."""


def row(place, p, what, times, above, below, aim) -> dict:
    columns = {"ranks": f"{p} x {place}", "what": what}
    columns |= {f"{name}, ms": f"{1e3 * statistics.median(times[name]):.1f}" for name in times}
    return columns | judged(Ratio.of(times[above], times[below]), aim)


def contestants(comm) -> dict:
    x = torch.randn(ROWS, WIDTH)
    ours = Sharded(made(), comm)
    whole = DataParallel(made(), comm)
    sgd = torch.optim.SGD
    return {
        "torch": step(theirs := by_torch(made(), comm), sgd(theirs.parameters(), 1e-3), x),
        "course": step(ours, ours.optimizer(sgd, lr=1e-3), x),
        "data parallel": step(whole, sgd(whole.parameters(), 1e-3), x),
    }


def made():
    torch.manual_seed(0)
    return nn.Sequential(*[
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        for _ in range(UNITS)
    ])  # fmt: skip


def by_torch(net, comm):
    mesh = DeviceMesh.from_group(comm.native.group, "cpu")
    for unit in net:
        fully_shard(unit, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def step(net, optimizer, x):
    def once():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return once
