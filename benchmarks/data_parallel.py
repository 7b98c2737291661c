"""A training step of `course`'s data parallel against torch's, in the same ranks; how much of the
network's time passes behind backward's; what fewer bytes are worth on a slow network."""

import statistics

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.comm.hosts import hosts
from course.parallel.compression import OneBit, PowerSGD, TopK
from course.parallel.data import DataParallel

BUCKET_MB, ROWS = 1, 64
PLACES = {"one machine": lambda p: None, "1 Gb/s": lambda p: hosts(p, 1, "1gbit")}
SLOW = hosts(2, 1, "100mbit")
COMPRESSED = {"all": None, "1 bit": OneBit, "top 1 %": lambda: TopK(0.01, momentum=0.0),
              "PowerSGD, rank 2": PowerSGD}  # fmt: skip
AS_FAST, A_GAIN = Aim("≥", 1.0), Aim("≥", 1.0)


def measure(turns) -> Table:
    """Rows against torch's for every net, place and number of ranks; then what compression wins."""
    rows = [against_torch(net, place, p, turns) for net in NETS for place in PLACES for p in (2, 4)]
    return Table("Steps of data parallel training", rows + compressed(turns), NOTE)


NOTE = f"""float32, {ROWS} rows a rank, buckets of {BUCKET_MB} MB, plain SGD, unchecked. \
ratio = the other's time / the time: of course against torch.nn.parallel.DistributedDataParallel \
over gloo, or of a step that sends all gradients against one that sends fewer bytes. ms = of the \
median step; alone = the same step of one rank that sends nothing, ms."""


def mlp():
    return nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(512, 512), nn.ReLU())])


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64, 256),
        nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


NETS = {"4-layer MLP": (mlp, (ROWS, 512)), "convolutional": (convnet, (ROWS, 1, 16, 16))}


def against_torch(net, place, p, turns) -> dict:
    times = race(contestants, p, turns, *NETS[net], on=PLACES[place](p))
    return row(net, f"{p} x {place}", "course", times["course"], times["torch"], times, AS_FAST)


def compressed(turns) -> list:
    times = race(compressors, SLOW.number, turns, *NETS["4-layer MLP"], on=SLOW)
    return [row("4-layer MLP", f"{SLOW.number} x 100 Mb/s", name, times[name], times["all"], times,
                A_GAIN) for name in COMPRESSED if name != "all"]  # fmt: skip


def row(net, place, name, seconds, others, times, aim) -> dict:
    columns = {"net": net, "ranks": place, "step": name}
    columns["ms"] = f"{1e3 * statistics.median(seconds):.1f}"
    columns["alone"] = f"{1e3 * statistics.median(times['alone']):.1f}"
    return columns | judged(Ratio.of(others, seconds), aim)


def contestants(comm, make, shape) -> dict:
    group = comm.native.group
    torchs = DistributedDataParallel(make(), process_group=group, bucket_cap_mb=BUCKET_MB)
    ours = DataParallel(make(), comm, bucket_mb=BUCKET_MB, algorithm="auto")
    x = torch.randn(shape)
    return {"torch": step(torchs, x), "course": step(ours, x), "alone": step(make(), x)}


def compressors(comm, make, shape) -> dict:
    x = torch.randn(shape)
    steps = {name: step(DataParallel(make(), comm, bucket_mb=BUCKET_MB, hook=hook and hook()), x)
             for name, hook in COMPRESSED.items()}  # fmt: skip
    return steps | {"alone": step(make(), x)}


def step(net, x):
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def once():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return once
