"""Attention over a cut sequence: blocks round a ring against all keys and values in one place."""

import pathlib
import statistics

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.report import MB, Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.collectives import all_gather, reduce_scatter
from course.parallel.sequence import contiguous, ring_attention, zigzag
from course.worlds import hosts, run

HEADS, DIM, P = 4, 32, 4
LENGTHS = 2048, 8192
PLACES = {"one machine": lambda: None, "1 Gb/s": lambda: hosts(P, 1, "1gbit")}


def measure(turns) -> Table:
    """Time of forward and backward, and the memory that it takes on top, for each length."""
    rows = []
    for place, world in PLACES.items():
        for length in LENGTHS:
            times = race(contestants, P, turns, length, on=world())
            ratio = Ratio.of(times["gathered"], times["ring"])
            columns = {"ranks": f"{P} x {place}", "positions": length}
            columns |= {f"{k}, ms": f"{1e3 * statistics.median(v):.0f}" for k, v in times.items()}
            grown = run(peaks, P, length, checked=False)[P - 1]
            columns |= {f"{name}, MB": f"{peak / MB:.0f}" for name, peak in grown.items()}
            rows.append(columns | judged(ratio, Aim()))
    return Table("Causal attention over a cut sequence", rows, NOTE)


NOTE = f"""float32, {HEADS} heads of {DIM}, {P} ranks, forward and backward, unchecked.  ring = \
blocks round a ring, cut zigzag so that all ranks have as much to do; gathered = keys and values \
of all positions gathered, torch's attention with a mask, gradients added up and cut.  MB = by how \
much the last rank's memory grows meanwhile at most.  ratio = time gathered / ring."""


def contestants(comm, length) -> dict:
    torch.manual_seed(comm.rank)
    q, k, v = (torch.randn(HEADS, length // P, DIM, requires_grad=True) for _ in range(3))
    return {"ring": lambda: ring(comm, q, k, v, length),
            "gathered": lambda: gathered(comm, q, k, v, length)}  # fmt: skip


def ring(comm, q, k, v, length):
    ring_attention(comm, q, k, v, zigzag(length, P), causal=True).sum().backward()


def gathered(comm, q, k, v, length):
    keys, values = (Gathered.apply(x, comm) for x in (k, v))
    at = contiguous(length, P).positions(comm.rank)
    mask = torch.arange(length) <= at[:, None]
    scaled_dot_product_attention(q, keys, values, mask).sum().backward()


class Gathered(torch.autograd.Function):
    """The parts [heads, positions, dim] of all ranks in a row."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        parts = [torch.empty_like(x) for _ in range(P)]
        all_gather(comm, parts, x.detach())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, slope):
        parts = [part.contiguous() for part in slope.chunk(P, 1)]
        out = torch.empty_like(parts[0])
        reduce_scatter(ctx.comm, out, parts)
        return out, None


def peaks(comm, length) -> dict:
    """{name: bytes by which this process grew at most}, where the system tells."""
    return {name: grown(call) for name, call in contestants(comm, length).items()}


def grown(call, own=pathlib.Path("/proc/self")) -> float:
    call()  # what is kept for later calls is there already
    if not (own / "clear_refs").exists():
        return float("nan")
    (own / "clear_refs").write_text("5")  # the peak begins anew
    before = told(own, "VmRSS")
    call()
    return told(own, "VmHWM") - before


def told(own, name) -> int:
    line = next(line for line in (own / "status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])
