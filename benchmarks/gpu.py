"""What one GPU does of it: a step of the largest network of Coates et al. that fits, untied layers
against dense products, sparse codes against scikit-learn, and ranks that share the GPU.

Without a GPU every line runs on the CPU, at sizes that fit a laptop, and the rows say so.
"""

import functools
import statistics

import torch

from benchmarks.report import Aim, Table, judged
from benchmarks.sparse_coding import ATOMS, METHODS, PENALTY, scikit_codes
from benchmarks.spatial import PLAN, step
from benchmarks.turns import Ratio, in_turns, seconds
from course.cluster.cots.network import PUBLISHED, plan_for, weights
from course.learning.convolution.local_linear import local_linear
from course.learning.images.whitening import whitened_patches
from course.learning.nine_layers import NineLayers
from course.learning.sparse.dictionary import online
from course.learning.sparse.sparse_coding import encode
from course.parallel.array import part
from course.parallel.spatial.untied import cut_untied
from course.worlds import processes, run

ROOM = 0.9  # of the memory; the rest is for neurons and for what torch keeps
BATCH = {"cuda": 96, "cpu": 32}
UNTIED = {"cuda": (24, 24, 96, 16, 16, 16), "cpu": (8, 8, 64, 10, 10, 8)}
DENSE_SHARE, FASTER = Aim("≥", 0.6), Aim("≥", 50.0)


def measure(turns) -> Table:
    """A row for each question; each is measured if there is room for it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = [update_step(device, turns), untied(device, turns), codes(device, turns)]
    rows += [shared(device, ranks, turns) for ranks in (1, 2, 4)]
    return Table(f"One GPU: {name(device)}", rows, NOTE)


NOTE = """step: forward, backward and update of the largest network that fits, one rank; ratio = \
arithmetic of its products a second / that of one large dense product.  untied: local_linear, \
forward and backward, ratio likewise.  codes: of 4 000 patches, ratio = time of scikit-learn's \
lasso_cd on this machine's cores / ours.  shared: the same small step on ranks that share the \
device, ratio = time of one rank that does it all / theirs."""


def name(device) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "none, measured on the CPU"


def row(what, size, seconds_, ratio, aim) -> dict:
    columns = {"what": what, "size": size, "ms": f"{1e3 * statistics.median(seconds_):.1f}"}
    return columns | judged(ratio, aim)


def largest_plan(device) -> tuple:
    """The plan with the most weights that fits with its gradient, and the dtype in which it does:
    float32 if it can be."""
    if device == "cpu":
        return PLAN, torch.float32
    room = ROOM * torch.cuda.mem_get_info()[0]
    for wanted in sorted(PUBLISHED.values(), reverse=True):
        for dtype in (torch.float32, torch.bfloat16):
            if 2 * dtype.itemsize * wanted <= room:
                return plan_for(wanted), dtype
    return PLAN, torch.float32


def update_step(device, turns) -> dict:
    plan, dtype = largest_plan(device)
    net = made(plan, device, dtype)
    images = torch.randn(BATCH[device], plan.channels, plan.side, plan.side, dtype=dtype,
                         device=device)  # fmt: skip
    dense = Dense(device, dtype)
    times = raced({"step": step(net, images), "dense": dense.multiply}, turns)
    flop = 6 * BATCH[device] * weights(plan)  # too many for the first stage, by a per cent or less
    ratio = against_dense(times["step"], flop, times["dense"], dense.flop)
    return row("step", f"{weights(plan):,} weights, {dtype}", times["step"], ratio, Aim())


def made(plan, device, dtype):
    """A network of small random weights, made where it stays."""
    with torch.device("meta"):
        net = NineLayers(plan, seed=0).to(dtype)
    net = net.to_empty(device=device)
    for each in (*net.parameters(), *net.buffers()):
        torch.nn.init.normal_(each, 1.0 if each.ndim == 0 else 0.0, 0.01)
    return net


class Dense:
    """A product of two large matrices, the fastest thing that a device does."""

    def __init__(self, device, dtype):
        side = 8192 if device == "cuda" else 1024
        self.a, self.b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        self.flop = 2 * side**3

    def multiply(self):
        return self.a @ self.b


def untied(device, turns) -> dict:
    rows, columns, outputs, field, stride, channels = UNTIED[device]
    batch, side = BATCH[device], (rows - 1) * stride + field
    shapes = (batch, channels, side, side), (rows, columns, outputs, field, field, channels)
    x, w = (torch.randn(shape, device=device, requires_grad=True) for shape in shapes)

    def once():
        local_linear(x, w, stride=stride).sum().backward()
        x.grad = w.grad = None

    dense = Dense(device, torch.float32)
    times = raced({"untied": once, "dense": dense.multiply}, turns)
    ratio = against_dense(times["untied"], 6 * batch * w.numel(), times["dense"], dense.flop)
    return row("untied", f"{w.numel():,} weights", times["untied"], ratio, DENSE_SHARE)


def codes(device, turns) -> dict:
    patches = whitened_patches(14, 4_000, seed=0)
    dictionary = online(patches, ATOMS, PENALTY, batch=256, epochs=1, seed=0).dictionary
    there = patches.to(device), dictionary.to(device), PENALTY
    kind, options = METHODS["lasso_cd, float32"]
    theirs = functools.partial(scikit_codes, patches, dictionary, kind, options)
    times = raced({"ours": lambda: encode(*there), "theirs": theirs}, min(turns, 3))
    ratio = Ratio.of(times["theirs"], times["ours"])
    return row("codes", f"4 000 patches, {ATOMS} atoms", times["ours"], ratio, FASTER)


def shared(device, ranks, turns) -> dict:
    """One small step, cut over ranks that share the device."""
    said = run(small_steps, ranks, turns, on=processes(device=device, oversubscribe=True),
               checked=False, timeout=300)  # fmt: skip
    alone = run(small_steps, 1, turns, on=processes(device=device), checked=False, timeout=300)[0]
    together = [max(turn) for turn in zip(*said)]
    return row("shared", f"{ranks} ranks", together, Ratio.of(alone, together), Aim())


def small_steps(comm, turns) -> list:
    grid = {1: (1, 1), 2: (1, 2), 4: (2, 2)}[comm.size]
    net = cut_untied(made(PLAN, comm.device, torch.float32), comm, grid)
    images = torch.randn(8, PLAN.channels, PLAN.side, PLAN.side, device=comm.device)
    return raced({"step": step(net, part(comm, images, (1, 1, *grid)))}, turns)["step"]


def against_dense(times, flop, dense_times, dense_flop) -> Ratio:
    """Arithmetic a second, as a share of that of a dense product."""
    return Ratio.of([t / dense_flop for t in dense_times], [t / flop for t in times])


def raced(contestants, turns) -> dict:
    timed = {name: functools.partial(seconds, functools.partial(finished, call))
             for name, call in contestants.items()}  # fmt: skip
    return in_turns(timed, turns)


def finished(call):
    """Calls return before a GPU has done what they ask for: wait until it has."""
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
