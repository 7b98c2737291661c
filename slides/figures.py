"""The figures of parts I and II and of the workers of part III, each by a function of its name.

What the package draws, at the size of a slide; the docstring is the text of the image.  Nothing is
measured in time: what depends on a machine is in the notebooks.
"""

import functools
import math

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy

from course.classroom import cuts, figures, graphs, player
from course.classroom.drawings import (
    batch_size,
    block_windows,
    card,
    contour,
    im2col,
    layer_cut,
    lines,
    network,
    overlap,
    path,
    pushes,
    race,
    shards,
    soft_threshold,
    springs,
    stages,
    stale,
)
from course.cluster import fabric, hardware
from course.collectives import all_reduce, cost
from course.collectives.tree import binomial_tree
from course.comm import Trace
from course.learning.images import whitening
from course.learning.nine_layers.plan import Geometry, Norm, Plan
from course.learning.sparse import dictionary
from course.learning.training import descent
from course.learning.training.digits import Images, digit_net, digit_split
from course.parallel.gossip import topology
from course.parallel.gossip.topology import metropolis, steps_to_agree
from course.worlds import run, simulated

OFFICE = hardware.ETHERNET_1G


# Part I

HESSIAN = torch.tensor([[2.0, 1.6], [1.6, 2.0]], dtype=torch.float64)
BEST, START = (torch.tensor(at, dtype=torch.float64) for at in ([0.3, 0.5], [-0.8, 1.45]))
X, W1, W2 = (torch.tensor(numbers) for numbers in (
    [1.0, 0.5, 2.0], [[1.0, -1.0], [2.0, 2.0], [-0.5, 1.0]], [[0.5, 0.1], [-0.25, 0.5]],
))  # fmt: skip


def valley():
    """A loss over two weights, and where it is curved most and least."""
    title = "A long valley: steep across, flat along"
    return contour.directions(HESSIAN, BEST, START, title)


def walks():
    """Gradient descent just below and just above the largest stable rate."""
    limit = 2 / torch.linalg.eigvalsh(HESSIAN)[-1]

    def loss(w):
        return (w - BEST) @ HESSIAN @ (w - BEST) / 2

    paths = {}
    for share in 0.9, 1.03:
        found = descent.gradient_descent(loss, START, share * limit, 25)
        paths[f"{share} · 2/L"] = found.path
    return contour.walks(HESSIAN, BEST, START, paths, "25 steps at two rates")


def forward():
    """A small network with a number on every unit and edge."""
    h = (X @ W1).clamp(min=0)
    title = "Each unit adds up what arrives: number times weight"
    layers = "pixels x", "hidden layer h", "scores s"
    return network.draw([X, h, h @ W2], [W1, W2], title, layers=layers)


def backward():
    """A small network with the slope of the loss in every weight; the right class is the first."""
    h = (X @ W1).clamp(min=0)
    g2 = (h @ W2).softmax(0) - torch.tensor([1.0, 0.0])
    g1 = W2 @ g2 * (h > 0)
    edges = [torch.outer(X, g1), torch.outer(h, g2)]
    title = "On every edge: the slope of the loss in its weight"
    layers = "pixels x", "hidden layer h", "scores s"
    return network.draw([X, h, h @ W2], edges, title, layers=layers, back=[(), g1, g2])


def overfitting():
    """The losses of a network that learns 100 digits by heart."""
    training, validation, _ = digit_split()
    few, net = Images(training.x[:100], training.y[:100]), digit_net(seed=0)
    optimizer, history = torch.optim.SGD(net.parameters(), lr=0.5), []
    for _ in range(60):
        with torch.no_grad():
            history.append(
                [float(cross_entropy(net(each.x), each.y)) for each in (few, validation)]
            )
        for rows in torch.randperm(100).split(10):
            optimizer.zero_grad()
            cross_entropy(net(few.x[rows]), few.y[rows]).backward()
            optimizer.step()
    known, new = zip(*history)
    losses = {"training": (range(60), known), "validation": (range(60), new)}
    title = "100 digits to learn from, losses by epoch"
    return lines.draw(losses, title, "epoch", "loss (nats)", log="y")


def threshold():
    """The soft threshold, and what it makes of three numbers."""
    return soft_threshold.draw(0.5, (2.0, 0.3, -1.0), "The soft threshold with t = 0.5")


def edges():
    """Atoms of 8 x 8 pixels, learned from whitened photographs."""
    patches = whitening.whitened_patches(8, 10_000, seed=0)
    found = dictionary.online(patches, 64, 1.2, batch=256, epochs=2, seed=0).dictionary
    return figures.tiles(found.view(-1, 8, 8), "64 atoms of 8 × 8 pixels", columns=16)


def as_a_product():
    """Every window of a picture as a column."""
    taps = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    title = "Each window becomes a column"
    return im2col.draw(torch.arange(12.0).view(3, 4), taps, title)


def blocks():
    """Sixteen windows, or one window for a block."""
    return block_windows.draw()


def one_stage():
    """Two pictures of one thing in other light, through one stage by hand."""
    pixels = 4.0, 1.0, 5.0, 5.0, 8.0
    turned = _stage(*(-pixel for pixel in pixels))
    rows = {"a picture": _stage(*pixels), "signs turned": turned}
    return path.draw(rows, "Other signs: the neurons are the same")


def _stage(*pixels):
    """The numbers of every step of a stage of pairs."""
    pixels = torch.tensor(pixels)
    match = pixels[1:] - pixels[:-1]
    rectified = match**2
    pools = (rectified[:-1] + rectified[1:]).sqrt()
    centred = pools - pools.mean()
    return [pixels, match, rectified, pools, centred / (centred**2).mean().sqrt()]


def nine_layers():
    """The layers of notebook 07's network, to scale."""
    plan = Plan(1, 32, Norm(9, 3.0, 0.02), (
        Geometry(20, 2, 4, 0.1, 3, 1), Geometry(3, 1, 8, 0.3, 2, 1), Geometry(2, 1, 8, 0.3, 1, 1),
    ))  # fmt: skip
    return stages.draw(plan, "An orange cell reads the orange window on its left")


# Part II


def three_cuts():
    """The work of training as a box, cut in three directions."""
    return cuts.draw()


def layer_in_two():
    """One layer, two ranks, and what each sends."""
    return layer_cut.draw()


def two_numbers():
    """The bandwidth that messages reach, by their size, over three cables."""
    sizes = [2**k for k in range(4, 31)]
    cables = hardware.ETHERNET_1G, hardware.ETHERNET_10G, hardware.NDR
    reached = {}
    for cable in cables:
        rates = [n / (cable.latency_s + n / cable.bytes_per_s) / 1e9 for n in sizes]
        reached[cable.name] = sizes, rates
    title = "Short messages pay for latency, long ones for bytes"
    text = title, "message (bytes)", "bandwidth reached (GB/s), by the formula"
    return lines.draw(reached, *text, log="xy")


def thirty_seconds():
    """A billion parameters, by what is assumed."""
    plain = 1e9 * 4 * 8 / 1e9  # parameters, bytes, bits; bits a second
    assumed = {
        "4 bytes each, one way, 1 Gb/s": plain,
        "2 bytes each": plain / 2,
        "gradients there, weights back": 2 * plain,
        "in a ring of 16 machines": plain * 2 * 15 / 16,
        "10 Gb/s Ethernet": plain / 10,
        "FDR InfiniBand, 54.5 Gb/s": plain / 54.5,
    }
    title = "One billion parameters: the seconds, by what is assumed"
    return figures.bars(assumed, title, "time (s)")


def four_collectives():
    """Collectives that hand out and collect: what each rank holds before and after."""
    return card.draw(run(card.all_eight, 4), list(card.WHAT)[:4])


def other_four():
    """Collectives whose result is everywhere: what each rank holds before and after."""
    return card.draw(run(card.all_eight, 4), list(card.WHAT)[4:])


def broadcast_tree():
    """A broadcast among 8 ranks in 3 steps."""
    axes = figures.panels(1, width=7.0, height=3.6)[0]
    plan = player.planned(binomial_tree(8))
    title = "The ranks that have it double: 8 ranks in 3 steps"
    return player.rounds(plan, 8, title, axes)


def four_sums():
    """What four all-reduces of 960 bytes send among 8 ranks."""
    names = "tree", "recursive_doubling", "halving_doubling", "ring"
    panels = figures.panels(4, width=3.2, height=5.2)
    for name, axes in zip(names, panels, strict=True):
        sent = _messages(name)
        steps, total = max(m.step for m in sent), sum(m.bytes for m in sent)
        title = f"{name}: {steps} steps, {total:,} bytes"
        player.rounds(sent, 8, title, axes, full=960).get_legend().remove()
    return panels[0].figure


def _messages(algorithm):
    trace, world = Trace(), simulated(fabric.one_switch(8, hardware.FREE, hardware.NDR))
    by_it = functools.partial(all_reduce, algorithm=algorithm)
    run(lambda comm: by_it(comm, torch.ones(240)), 8, on=world, trace=trace)
    return trace.messages


def who_is_fastest():
    """Predicted times of the all-reduces on 64 ranks."""
    sizes = [round(10 ** (k / 10) / 4) * 4 for k in range(30, 81)]
    found = {}
    for size in sizes:
        for name, price in cost.all_reduces(64, size // 4, 4).items():
            took = price.seconds(OFFICE.latency_s, 1 / OFFICE.bytes_per_s)
            known = found.setdefault(name, ([], []))
            known[0].append(size), known[1].append(took)
    title = "64 ranks over 1 Gb/s: which is fastest depends on the size"
    return race.draw(found, title, "vector (bytes)", "time, predicted (s)")


def five_graphs():
    """Who talks to whom, among twelve ranks."""
    kinds = {
        "random": topology.random_regular_graph(12, 4, seed=0),
        "ring": topology.ring_graph(12),
        "wheel": topology.wheel_graph(12),
        "star": topology.star_graph(12),
        "complete": topology.complete_graph(12),
    }
    panels = figures.panels(5, 2.8, 3.1)
    for axes, (name, graph) in zip(panels, kinds.items(), strict=True):
        near = sorted({len(each) for each in graph.neighbours})
        graphs.network(graph, f"{name}: {' or '.join(map(str, near))} neighbours", axes=axes)
    return panels[0].figure


def rounds_to_agree():
    """Rounds of gossip until a thousandth is left, by ranks, on three graphs."""
    counts = [8, 16, 32, 64, 128, 256]
    kinds = {
        "ring": topology.ring_graph,
        "random": lambda p: topology.random_regular_graph(p, 4, 0),
    }
    rows = {name: (counts, [steps_to_agree(metropolis(graph(p)), 1e-3) for p in counts])
            for name, graph in kinds.items()}  # fmt: skip
    rows["one-peer"] = counts, [graphs.one_peer_rounds(p, 1e-3) for p in counts]
    title = "Rounds until a thousandth of the disagreement is left"
    return lines.draw(rows, title, "ranks", "rounds", log="xy")


# Part III


def when_sent():
    """One step in 4 buckets of 16 layers, and the length of a step by the size of a bucket."""
    layer_s, layers = 0.5e-3, 16
    ready = [layer_s * (layers / 2 + 1 + layer) for layer in range(layers)]
    spans = {size: _spans(ready, size) for size in range(1, layers + 1)}
    marks = [1e3 * each for each in (layer_s * layers / 2, *ready)]
    shown = [(1e3 * begins, 1e3 * ends) for begins, ends in spans[4]]
    totals = [1e3 * spans[size][-1][1] for size in spans]
    return overlap.choice(marks, shown, list(spans), totals, 4)


def _spans(ready, size) -> list:
    """When the ring all-reduce of each bucket of `size` layers begins and ends, on 8 ranks."""
    found, over = [], 0.0
    for first in range(0, len(ready), size):
        bucket = ready[first : first + size]
        begins = max(over, bucket[-1])
        over = begins + cost.ring_all_reduce(8, len(bucket) * 2**16, 4).seconds(20e-6, 8e-10)
        found.append((begins, over))
    return found


def who_keeps_what():
    """Four ranks, and what of each vector each has: ZeRO, stage 1."""
    kept = {"weights": False, "gradients": False, "Adam's averages": True}
    return shards.draw(kept, 4, "ZeRO, stage 1: only the optimizer's state is cut")


def noisy_slopes():
    """The slopes of single samples at three weights."""
    targets = torch.randn(12, generator=torch.Generator().manual_seed(0)).tolist()
    title = "Slopes of twelve samples, at three places"
    return batch_size.slopes(targets, (4.0, 1.0, 0.0), title)


def server():
    """Two clients of a server, and one stale gradient."""
    turns = [pushes.Turn("0", 0.0, 1.0, "g₀"), pushes.Turn("1", 0.4, 1.8, "g₀"),
             pushes.Turn("0", 1.2, 2.4, "g₁")]  # fmt: skip
    weights = ["w₀", "w₁", "w₂", "w₃"]
    return pushes.server_timeline(turns, weights, "Client 1's gradient is of version 0")


def stale_limit():
    """Up to which rate gradients of each age still arrive."""
    title = "The largest rate that arrives, by the age of the gradients"
    return stale.limits(lambda s: 2 * math.sin(math.pi / (2 * (2 * s + 1))), {}, title)


def tied():
    """Workers on a bowl and their centre."""
    springs.show_springs(0.1, 0.22, 1)
    return plt.gcf()
