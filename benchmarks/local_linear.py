"""Untied local layers, forward and backward, against dense products of one size and unfold."""

import contextlib
import multiprocessing
import pathlib
import re
import statistics
from typing import NamedTuple

import torch

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, seconds
from course.learning.nine_layers.layers import LocalLinear


class Geometry(NamedTuple):
    batch: int
    channels: int
    side: int
    field: int
    stride: int
    outputs: int  # of a window

    def __str__(self):
        return ", ".join(map(str, self))


GEOMETRIES = (
    Geometry(96, 8, 32, 10, 2, 32),
    Geometry(96, 3, 64, 18, 4, 128),
    Geometry(96, 8, 64, 18, 2, 32),
)


def measure(turns, *, geometries=GEOMETRIES) -> Table:
    """Two rows of time and one of memory for every geometry, float32, one thread."""
    rows = [row for geometry in geometries for row in measured(geometry, turns)]
    return Table("Untied local layers against dense products and unfold", rows, NOTE)


NOTE = """Geometry: batch, channels, side, field, stride, outputs of a window; forward and both \
gradients. ratio = the other's time / LocalLinear's, where «dense products» are three batched \
products with inputs already copied out window by window; answers and gradient of the weights are \
new memory for all, the dense products' gradient of the windows is not. «unfold» is \
einsum(x.unfold(...).unfold(...), weights). For memory, ratio = what a fresh process held at most \
beyond what it held before / (input + weights + answers, and the gradients of all three)."""


def measured(geometry, turns) -> list:
    with one_thread():
        times = in_turns(contestants(geometry), turns)
    ours = times.pop("LocalLinear")
    against = {name: Ratio.of(times[name], ours) for name in times}
    # Five times unfold, or 0.7 of the dense products where that is less.
    reachable = 0.7 * Ratio.of(times["unfold"], times["dense products"]).median
    aims = {"dense products": 0.7, "unfold": round(min(5, reachable), 2)}
    rows = [named(geometry, f"time of {name}", ours) | judged(against[name], Aim("≥", bound))
            for name, bound in aims.items()]  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        most = fresh.apply(peak, (geometry,))
    return [*rows, named(geometry, "memory", ours) | judged(Ratio(*[most] * 3), Aim("≤", 1.2))]


def named(geometry, compared, ours) -> dict:
    row = {"geometry": geometry, "compared": compared}
    return row | {"LocalLinear, ms": f"{1e3 * statistics.median(ours):.0f}"}


def contestants(geometry) -> dict:
    layer, x, slope = drawn(geometry)
    windows = layer.out_size[0] * layer.out_size[1]
    matrices = layer.weight.detach().flatten(3).flatten(0, 1)  # [windows, outputs, inputs]
    seen = torch.randn(windows, matrices.shape[2], len(x))
    sent = torch.randn(windows, matrices.shape[1], len(x))
    to_windows = torch.empty_like(seen)

    def dense_products():
        answers, to_matrices = matrices @ seen, sent @ seen.mT
        torch.bmm(matrices.mT, sent, out=to_windows)
        return answers, to_matrices

    calls = {
        "LocalLinear": lambda: gradients(layer, layer, x, slope),
        "dense products": dense_products,
        "unfold": lambda: gradients(unfolded(layer), layer, x, slope),
    }
    return {name: lambda call=call: seconds(call) for name, call in calls.items()}


def drawn(geometry):
    batch, channels, side, field, stride, outputs = geometry
    layer = LocalLinear(channels, side, field, outputs, stride=stride, seed=0)
    x = torch.randn(batch, channels, side, side, requires_grad=True)
    return layer, x, torch.randn(batch, outputs, *layer.out_size)


def gradients(function, layer, x, slope):
    return torch.autograd.grad(function(x), (x, layer.weight), slope)


def unfolded(layer):
    def function(x):
        seen = x.unfold(2, layer.field, layer.stride).unfold(3, layer.field, layer.stride)
        return torch.einsum("bcyxij,yxoijc->boyx", seen, layer.weight)

    return function


def peak(geometry) -> float:
    """Of one forward and backward pass in this process, which should not have made one before."""
    torch.set_num_threads(1)
    small = drawn(geometry._replace(batch=2, side=geometry.field))
    gradients(small[0], *small)  # what libraries load and keep is not the layer's
    before = memory("VmRSS")
    layer, x, slope = drawn(geometry)
    gradients(layer, layer, x, slope)
    counted = 2 * sum(each.nbytes for each in (layer.weight, x, slope))
    return (memory("VmHWM") - before) / counted


def memory(name) -> int:
    """Bytes of this process, VmRSS now or VmHWM at most; Linux tells."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", status).group(1))


@contextlib.contextmanager
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
