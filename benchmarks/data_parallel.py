"""A training step of `course`'s data parallel against torch's, in the same ranks; how much of the
network's time passes behind backward's; what fewer bytes are worth on a slow network."""

import statistics
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.parallel.data.compression import OneBit, PowerSGD, TopK
from course.parallel.data.data_parallel import DataParallel
from course.worlds import hosts

BUCKET_MB, ROWS = 1, 64
PLACES = {"one machine": lambda p: None, "1 Gb/s": lambda p: hosts(p, 1, "1gbit")}
ALGORITHM = {"one machine": "hierarchical", "1 Gb/s": "ring"}
SLOW = hosts(2, 1, "100mbit")
COMPRESSED = {"all": None, "1 bit": OneBit, "top 1 %": lambda: TopK(0.01, momentum=0.0),
              "PowerSGD, rank 2": PowerSGD}  # fmt: skip
AS_FAST, A_GAIN, AS_PREDICTED = Aim("≥", 1.0), Aim("≥", 1.0), Aim("≤", 1.1)
LAYERS, REST_S = 4, 0.012


def measure(turns) -> Table:
    """Rows against torch's for every net, place and number of ranks; then what compression wins."""
    rows = [against_torch(net, place, p, turns) for net in NETS for place in PLACES for p in (2, 4)]
    return Table("Steps of data parallel training", [*rows, overlapped(turns), *compressed(turns)],
                 NOTE)  # fmt: skip


NOTE = f"""float32, {ROWS} rows a rank, buckets of {BUCKET_MB} MB, plain SGD, unchecked. \
ratio = the other's time / the time: of course against torch.nn.parallel.DistributedDataParallel \
over gloo, or of a step that sends all gradients against one that sends fewer bytes. ms = of the \
median step; alone = the same step of one rank that sends nothing, ms. resting = {LAYERS} linear \
layers, each of which rests for {REST_S * 1e3:g} ms in backward, as if a device computed it; there \
ratio = the time / what it should be: the longer of computing and communicating (one bucket's step \
without its computing), and a layer's part of the shorter."""


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
    times = race(contestants, p, turns, *NETS[net], ALGORITHM[place], on=PLACES[place](p))
    ratio = Ratio.of(times["torch"], times["course"])
    return row(net, f"{p} x {place}", "course", times, ratio, AS_FAST)


def overlapped(turns) -> dict:
    """A step whose messages travel while backward goes on, against what that should take."""
    times = race(resters, 2, turns, resting, (ROWS, 512), on=PLACES["1 Gb/s"](2))
    computing = times["alone"]
    sending = [whole - part for whole, part in zip(times["one bucket"], computing)]
    should = [max(pair) + min(pair) / LAYERS for pair in zip(computing, sending)]
    name = f"in {LAYERS} buckets"
    return row("resting", "2 x 1 Gb/s", name, times, Ratio.of(times[name], should), AS_PREDICTED)


def compressed(turns) -> list:
    times = race(compressors, SLOW.number, turns, *NETS["4-layer MLP"], on=SLOW)
    return [row("4-layer MLP", f"{SLOW.number} x 100 Mb/s", name, times,
                Ratio.of(times["all"], times[name]), A_GAIN)
            for name in COMPRESSED if name != "all"]  # fmt: skip


def row(net, place, name, times, ratio, aim) -> dict:
    columns = {"net": net, "ranks": place, "step": name}
    columns["ms"] = f"{1e3 * statistics.median(times[name]):.1f}"
    columns["alone"] = f"{1e3 * statistics.median(times['alone']):.1f}"
    return columns | judged(ratio, aim)


def contestants(comm, make, shape, algorithm) -> dict:
    group = comm.native.group
    torchs = DistributedDataParallel(make(), process_group=group, bucket_cap_mb=BUCKET_MB)
    ours = DataParallel(make(), comm, bucket_mb=BUCKET_MB, algorithm=algorithm)
    x = torch.randn(shape)
    return {"torch": step(torchs, x), "course": step(ours, x), "alone": step(make(), x)}


def compressors(comm, make, shape) -> dict:
    x = torch.randn(shape)
    steps = {name: step(DataParallel(make(), comm, bucket_mb=BUCKET_MB, hook=hook and hook()), x)
             for name, hook in COMPRESSED.items()}  # fmt: skip
    return steps | {"alone": step(make(), x)}


def resters(comm, make, shape) -> dict:
    x = torch.randn(shape)
    sizes = {"one bucket": 1000, f"in {LAYERS} buckets": BUCKET_MB}
    steps = {name: step(DataParallel(make(), comm, bucket_mb=mb), x) for name, mb in sizes.items()}
    return steps | {"alone": step(make(), x)}


class Rest(torch.autograd.Function):
    """The identity; its backward takes REST_S and no core."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(REST_S)
        return gradient


class Resting(nn.Module):
    def forward(self, x):
        return Rest.apply(x)


def resting():
    return nn.Sequential(
        *[part for _ in range(LAYERS) for part in (nn.Linear(512, 512), Resting())]
    )


def step(net, x):
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def once():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return once
