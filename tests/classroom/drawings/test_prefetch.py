import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from course.classroom.drawings import prefetch
from course.classroom.timeline import Piece
from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, GTX_680, Cable
from course.comm import Trace
from course.parallel.sharded import Sharded
from course.worlds import run, simulated


def event(operation, start, end, call="", rank=0, peer=-1, background=True):
    return SimpleNamespace(rank=rank, operation=operation, peer=peer, start=start, end=end,
                           call=call, background=background)  # fmt: skip


TRACE = SimpleNamespace(events=[
    event("gather", 5.0, 5.001, "gather #3 in world/1:0, in the background (unit 1)"),
    event("reduce_scatter", 5.002, 5.004, "reduce_scatter #9 (float32 [3], op sum)"),
    event("all_gather", 5.004, 5.005, "all_gather #10 (float32 [3])"),
    event("all_reduce", 5.001, 5.002), event("gather", 5.0, 5.001, rank=1),
    event("gather", 4.0, 4.5), event("send", 5.0, 5.001, peer=1),
    event("gather", 5.0, 5.001, background=False),
])  # fmt: skip


def test_only_gathers_and_sums_of_the_rank_within_the_step_count():
    assert prefetch.calls(TRACE, 5.0, 6.0) == [
        Piece("gathers weights", 5.0, 5.001, "1"),
        Piece("sums gradients", 5.002, 5.004, ""),
        Piece("gathers weights", 5.004, 5.005, ""),
    ]


def test_each_step_has_three_lanes_and_counts_from_its_own_beginning():
    pieces = [Piece("forward", 5.001, 5.002, "0")]
    axes = prefetch.draw({"step 1": (pieces, 5.0, 6.0)}, TRACE, "title", "simulated")
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == ["step 1: computes", "step 1: gathers weights", "step 1: sums gradients"]
    assert axes.get_xlabel() == "time since the step began (ms), simulated"
    found = [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width())
             for b in axes.patches]  # fmt: skip
    right = [(0, 1, 1), (1, 0, 1), (1, 4, 1), (2, 2, 2)]
    assert [each for bar in found for each in bar] == pytest.approx(
        [each for bar in right for each in bar], abs=1e-6
    )


def test_every_layer_goes_forward_once_and_backward_once():
    layers, ticks = [nn.Linear(3, 3, bias=False) for _ in range(3)], itertools.count()
    pieces = prefetch.watch(layers, lambda: float(next(ticks)))
    nn.Sequential(*layers)(torch.ones(2, 3, requires_grad=True)).sum().backward()
    order = [(piece.what, piece.text) for piece in pieces]
    assert order == [("forward", text) for text in "012"] + [("backward", text) for text in "210"]
    assert all(piece.end == piece.start + 1 for piece in pieces)


def computed(comm):
    """Seconds of the second step that are computing, and of all of it."""
    layers = [nn.Linear(64, 64, bias=False, device=comm.device) for _ in range(3)]
    net = Sharded(nn.Sequential(*layers), comm, stage=3)
    pieces = prefetch.watch(layers, comm.clock)
    for _ in range(2):
        pieces.clear()
        start = comm.clock()
        net(torch.empty(8, 64, device=comm.device, requires_grad=True)).sum().backward()
    return sum(piece.end - piece.start for piece in pieces), comm.clock() - start


@pytest.mark.parametrize(("device", "least"), [(FREE, 0.0), (GTX_680, 1e-8)])
def test_waits_for_weights_are_not_computing(device, least):
    trace, slow = Trace(), Cable("slow", 1e-3, 1e6, "made up")
    world = simulated(one_switch(2, device, slow), device="meta")
    for own, whole in run(computed, 2, on=world, checked=False, trace=trace):
        assert least <= own < 0.01 * whole
    gathered = [each.text for each in prefetch.calls(trace, 0.0, 1e9)]
    assert {"0", "1", "2"} <= set(gathered)
