"""Attention over a cut sequence is that over the whole: values, slopes, bytes, memory."""

import functools
import json
import pathlib
import random

import pytest
import torch
import torch.nn.attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.collectives import all_reduce
from course.parallel.sequence import SequenceCut, contiguous, ring_attention, zigzag
from course.parallel.sequence.blocks import TILE
from course.parallel.sequence.ring_attention import cost
from course.worlds import RankError, run, simulated
from tests.largest import Largest
from tests.parallel.array.test_fetch import drawn
from tests.parallel.sequence.transformer import Transformer

ROOT = pathlib.Path(__file__).parents[3]


def some_cut(draw, length, ranks):
    """Contiguous, zigzag, or intervals by chance, of which some ranks may have none."""
    kind = draw.randrange(3)
    if kind < 2:
        return (contiguous, zigzag)[kind](length, ranks)
    borders = [0, *sorted(draw.choices(range(length + 1), k=5)), length]
    parts = [[] for _ in range(ranks)]
    for interval in zip(borders, borders[1:]):
        draw.choice(parts).append(interval)
    return SequenceCut(tuple(map(tuple, parts)))


def drawn_case(draw, comm, number):
    """A cut, what attention is given [2, heads, length, ...], and its options."""
    length, heads, dim, of_v = (draw.randint(1, most) for most in (40, 3, 6, 5))
    shapes = [(2, heads, length, n) for n in (dim, dim, of_v, of_v)]
    *whole, slope = (drawn(*shape, seed=4 * number + at) for at, shape in enumerate(shapes))
    options = {"causal": draw.random() < 0.6, "scale": draw.choice([None, 0.3])}
    return some_cut(draw, length, comm.size), whole, slope, options


def compared(comm, seed, count):
    """Cases in which a value, a slope or a number of bytes is another one, of `count` drawn."""
    draw, wrong = random.Random(seed), []
    for number in range(count):
        cut, inputs, slope, options = drawn_case(draw, comm, number)
        whole = [x.clone().requires_grad_() for x in inputs]
        mine = [cut.part(x, comm.rank, 2).requires_grad_() for x in inputs]
        expected = scaled_dot_product_attention(*whole, is_causal=options["causal"],
                                                scale=options["scale"])  # fmt: skip
        expected.backward(slope)
        at_first = comm.meter.sent_bytes
        found = ring_attention(comm, *mine, cut, **options)
        between = comm.meter.sent_bytes
        found.backward(cut.part(slope, comm.rank, 2))
        sent = between - at_first, comm.meter.sent_bytes - between
        pairs = [(expected, found), *((a.grad, b.grad) for a, b in zip(whole, mine))]
        close = all(torch.allclose(cut.part(a, comm.rank, 2), b, rtol=0, atol=1e-12)
                    for a, b in pairs)  # fmt: skip
        numbers = cost(cut, 2 * slope.shape[1] * (inputs[0].shape[-1] + slope.shape[-1]))
        if not close or sent != tuple(8 * n for n in numbers[comm.rank]):
            wrong.append((close, sent, cut, options))
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_cut_gives_the_attention_of_the_whole_its_slopes_and_the_bytes_of_the_formula(ranks):
    assert run(compared, ranks, ranks, 25, timeout=60) == [[]] * ranks


@pytest.mark.parametrize("ranks", [5, 8])
def test_on_more_ranks_of_an_imagined_cluster(ranks):
    on = simulated(one_switch(ranks, FREE, NDR))
    assert run(compared, ranks, ranks, 8, on=on) == [[]] * ranks


def largest(comm, length):
    cut = zigzag(length, comm.size)
    q = drawn(2, cut.count(comm.rank), 8).requires_grad_()
    with Largest() as found:
        ring_attention(comm, q, q, q, cut, causal=True).sum().backward()
    return found.numbers


def test_nothing_inside_grows_faster_than_the_sequence():
    """Scores are the largest: two heads, TILE queries, the keys of one interval."""
    for length in (4096, 8192):
        assert max(run(largest, 2, length, timeout=60)) <= 2 * TILE * length // 4


def losses(comm, text, steps):
    """Of a transformer that reads `text`, whole on one rank and cut on all: the same steps."""
    vocabulary = sorted(set(text))
    ids = torch.tensor([vocabulary.index(c) for c in text])
    cut, found = zigzag(len(text) - 1, comm.size), []
    for attention, positions in (
        (functools.partial(scaled_dot_product_attention, is_causal=True), torch.arange(cut.length)),
        (functools.partial(ring_attention, comm, cut=cut, causal=True), cut.positions(comm.rank)),
    ):
        torch.manual_seed(0)
        net = Transformer(len(vocabulary), cut.length, attention).double()
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        found.append([])
        for _ in range(steps):
            optimizer.zero_grad()
            scores = net(ids[positions], positions)
            loss = cross_entropy(scores, ids[positions + 1], reduction="sum") / cut.length
            loss.backward()
            total = loss.detach().clone()
            if len(positions) < cut.length:
                for x in (total, *(p.grad for p in net.parameters())):
                    all_reduce(comm, x)
            optimizer.step()
            found[-1].append(total.item())
    return found


def test_a_transformer_on_real_text_trains_to_the_losses_of_one_process():
    book = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text())
    text = "".join(line for cell in book["cells"] for line in cell["source"])[:300]
    for whole, cut in run(losses, 3, text, 8, timeout=60):
        assert torch.allclose(torch.tensor(cut), torch.tensor(whole), rtol=1e-10, atol=0)
        assert cut[-1] < 0.8 * cut[0]


def in_half(comm):
    """The error of bfloat16 numbers, beside that of torch's own attention in bfloat16."""
    cut = zigzag(64, comm.size)
    whole = [drawn(1, 2, 64, 8, seed=n) for n in range(3)]
    exact = scaled_dot_product_attention(*whole, is_causal=True)
    half = [x.bfloat16() for x in whole]
    # the fused one fails where ATEN_CPU_CAPABILITY is lowered
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        theirs = scaled_dot_product_attention(*half, is_causal=True)
    ours = ring_attention(comm, *(cut.part(x, comm.rank, 2) for x in half), cut, causal=True)
    error = (ours.double() - cut.part(exact, comm.rank, 2)).abs().max()
    return ours.dtype, float(error), float((theirs.double() - exact).abs().max())


def test_half_types_are_summed_in_float32():
    for dtype, error, of_torch in run(in_half, 2, timeout=20):
        assert dtype == torch.bfloat16 and error < 2 * of_torch


def under_autocast(comm):
    """Whether autocast leaves values and slopes as they are, of float32 and of bfloat16."""
    cut, same = contiguous(32, comm.size), []
    for dtype in (torch.float32, torch.bfloat16):
        whole, found = [drawn(2, 32, 8, seed=n).to(dtype) for n in range(3)], []
        mine = [cut.part(x, comm.rank, 1).requires_grad_() for x in whole]
        for half in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                out = ring_attention(comm, *mine, cut)
                found.append([out, *torch.autograd.grad(out.square().sum(), mine)])
        same.append(all(map(torch.equal, *found)))
    return same


def test_autocast_does_not_touch_the_scores():
    assert run(under_autocast, 2, timeout=20) == [[True, True]] * 2


def without_values(comm):
    """Two steps on meta tensors: shapes, and bytes."""
    cut = zigzag(4096, comm.size)
    q, k, v = (torch.empty(1, 8, cut.count(comm.rank), 64, device="meta", requires_grad=True)
               for _ in range(3))  # fmt: skip
    out = ring_attention(comm, q, k, v, cut, causal=True)
    out.sum().backward()
    return tuple(out.shape), tuple(k.grad.shape), comm.meter.sent_bytes


def test_on_tensors_without_values():
    world = simulated(one_switch(8, FREE, NDR), device="meta")
    there, back = cost(zigzag(4096, 8), 8 * 128)[0]
    expected = (1, 8, 512, 64), (1, 8, 512, 64), 4 * (there + back)
    assert run(without_values, 8, on=world) == [expected] * 8


def wrong(comm, how):
    cut = contiguous(8, comm.size)
    q, k = drawn(1, 2, 4, 3), drawn(1, 2, 4, 3)
    {
        "ranks": lambda: ring_attention(comm, q, k, k, contiguous(8, 3)),
        "length": lambda: ring_attention(comm, q[:, :, :3], k[:, :, :3], k[:, :, :3], cut),
        "heads": lambda: ring_attention(comm, q, k[:, :1], k[:, :1], cut),
        "types": lambda: ring_attention(comm, q, k.float(), k, cut),
        "causal": lambda: ring_attention(comm, q, k, k, cut, causal=comm.rank == 0),
    }[how]()


@pytest.mark.parametrize("how, sentence", [
    ("ranks", "rank 0: the sequence is cut for 3 ranks, and there are 2"),
    ("length", r"rank 0 has 4 positions of the cut, and the shape of q is \(1, 2, 3, 3\)"),
    ("heads", "rank 0: q, k and v agree but for the last axis of v"),
    ("types", "rank 0: q, k and v are of one floating type, not torch.float64, torch.float32"),
    ("causal", "causal"),
])  # fmt: skip
def test_what_cannot_be(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, how, timeout=5)


def stopped(comm, when):
    cut = contiguous(8, comm.size)
    q = drawn(1, cut.count(comm.rank), 3).requires_grad_()
    if (comm.rank, when) == (1, "there"):
        raise RuntimeError("no more")
    out = ring_attention(comm, q, q, q, cut)
    if (comm.rank, when) == (1, "back"):
        raise RuntimeError("no more")
    out.sum().backward()


@pytest.mark.parametrize("when", ["there", "back"])
def test_a_rank_that_stops_is_named(when):
    with pytest.raises(RankError, match="rank 1 failed: RuntimeError: no more"):
        run(functools.partial(stopped, when=when), 3, timeout=10)
