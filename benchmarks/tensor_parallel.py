"""A step of an MLP that is cut over ranks against torch's `parallelize_module`, in the same ranks:
with whole rows between its layers, and with cut ones (sequence parallel)."""

import statistics

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.parallel.array.layout import even_cuts
from course.parallel.tensor import MLP
from course.worlds import hosts

FEATURES, BLOCKS, ROWS = 512, 2, (64, 1024)
PLACES = {"one machine": lambda p: None, "1 Gb/s": lambda p: hosts(p, 1, "1gbit")}
AS_FAST = Aim("≥", 1.0)


def measure(turns) -> Table:
    """Rows for every place, number of ranks, number of rows and way."""
    rows = [row(place, p, count, way, times)
            for place in PLACES for p in (2, 4) for count in ROWS
            for way, times in raced(place, p, count, turns).items()]  # fmt: skip
    return Table("Steps of tensor parallel training", rows, NOTE)


NOTE = f"""float32, {BLOCKS} MLPs of {FEATURES}, {4 * FEATURES} and {FEATURES} features in a row, \
plain SGD, unchecked. ratio = torch's time / course's, of parallelize_module with \
ColwiseParallel and RowwiseParallel over gloo. ms = of the median step; alone = of one rank that \
computes all of it and sends nothing, while the others do as much."""


def raced(place, p, rows, turns) -> dict:
    """{way: {name: seconds in each turn}}."""
    times = race(contestants, p, turns, rows, on=PLACES[place](p))
    return {way: {"torch": times[f"torch, {way}"], "course": times[f"course, {way}"],
                  "alone": times["alone"]} for way in ("whole", "cut")}  # fmt: skip


def row(place, p, rows, way, times) -> dict:
    columns = {"ranks": f"{p} x {place}", "rows": f"{rows}, {way}"}
    columns |= {f"{name}, ms": f"{1e3 * statistics.median(times[name]):.1f}" for name in times}
    return columns | judged(Ratio.of(times["torch"], times["course"]), AS_FAST)


def contestants(comm, rows) -> dict:
    torch.manual_seed(0)
    x, cuts = torch.randn(rows, FEATURES), even_cuts(rows, comm.size)
    mine = x[cuts[comm.rank] : cuts[comm.rank + 1]]
    mesh = DeviceMesh.from_group(comm.native.group, "cpu")
    nets = {"alone": (Chain(made()), x, None)}
    for way, own, where in (("whole", x, None), ("cut", mine, cuts)):
        nets[f"torch, {way}"] = Chain(by_torch(made(), mesh, where)), own, None
        nets[f"course, {way}"] = Chain([MLP(comm, b.up, b.down) for b in made()]), own, where
    return {name: step(*each) for name, each in nets.items()}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(FEATURES, 4 * FEATURES), nn.Linear(4 * FEATURES, FEATURES)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Chain(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, *cuts):
        for block in self.blocks:
            x = x + block(x, *cuts)
        return x


def made() -> list:
    torch.manual_seed(0)
    return [Block() for _ in range(BLOCKS)]


def by_torch(blocks, mesh, cuts) -> list:
    """Cut by torch; with `cuts` each rank's rows come and go."""
    rows = Shard(0) if cuts else None
    up, down = ColwiseParallel(input_layouts=rows), RowwiseParallel(output_layouts=rows)
    for block in blocks:
        parallelize_module(block, mesh, {"up": up, "down": down})
    return blocks


def step(net, x, cuts):
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def once():
        optimizer.zero_grad()
        net(x, *([cuts] if cuts else [])).square().mean().backward()
        optimizer.step()

    return once
