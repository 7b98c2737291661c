"""Draw who talks to whom, and what each rank holds: `network` at one moment, `play` with a slider
over the rounds of a run; `disagreement` says how far the ranks are apart, `slowest_pattern` what
gossip shrinks least, `blended` what a mixing matrix makes of a start, `one_peer_rounds` how soon
the one-peer exponential graph agrees.
"""

import math

import numpy as np
import torch
from matplotlib import colormaps

from course.classroom.figures import COLOURS, named, panels
from course.classroom.widgets import slider, sliders

CIRCLE = 1.0  # its radius
ROOM = 1.25  # from the middle to the edge of a drawing
EQUAL = 1e-9  # eigenvalues that differ by less are one
PANEL = (4.2, 4.6)  # inches, with room for a title above a square


def disagreement(held) -> torch.Tensor:
    """How far the ranks are from their mean after each round, as a share of the start: [rounds].

    `held` [rounds, ranks, ...] is what each rank has; the distance is that of all numbers.
    """
    apart = (held - held.mean(dim=1, keepdim=True)).flatten(1).norm(dim=1)
    return apart / apart[0]


def blended(matrix, start, times) -> torch.Tensor:
    """What ranks that start with `start` [ranks, ...] hold after so many rounds of gossip with
    `matrix` [ranks, ranks], for each of `times`: [times, ranks, ...].
    """
    powers = torch.stack([torch.linalg.matrix_power(matrix, rounds) for rounds in times])
    return torch.tensordot(powers, start, 1)


def one_peer_rounds(p: int, tolerance: float) -> int:
    """Rounds on the one-peer exponential graph of `p` ranks, two or more, after which no start has
    more than a share `tolerance` of its disagreement left.  In each round a rank takes the mean
    with the rank 1, 2, 4, ... to its left.
    """
    left, rounds = torch.eye(p, dtype=torch.float64) - 1 / p, 0
    while torch.linalg.matrix_norm(left, 2) > tolerance:
        left = (left + left.roll(2 ** (rounds % (p - 1).bit_length()), dims=0)) / 2
        rounds += 1
    return rounds


def slowest_pattern(matrix, rank: int):
    """What of a number that only `rank` has does a round of gossip with `matrix` shrink least?

    The part of it [ranks], its largest entry of size 1, that belongs to the eigenvalue of largest
    size below that of the mean; and this eigenvalue, its share that is left after a round.
    """
    shares, patterns = torch.linalg.eigh(matrix - 1 / len(matrix))
    share = shares[shares.abs().argmax()]
    slow = patterns[:, (shares - share).abs() < EQUAL]  # several, where a graph is symmetric
    pattern = slow @ slow[rank]
    pattern = pattern - pattern.mean()
    return pattern / pattern.abs().max(), float(share)


def places(graph) -> np.ndarray:
    """Where the ranks are drawn [ranks, 2]: clockwise round a circle from the top; one that has
    more neighbours than all others, a hub, is in the middle.
    """
    degrees = [len(near) for near in graph.neighbours]
    hubs = [rank for rank, degree in enumerate(degrees) if degree == max(degrees)]
    middle = hubs if len(hubs) == 1 else []
    outside = [rank for rank in range(graph.ranks) if rank not in middle]
    at = np.zeros((graph.ranks, 2))
    for number, rank in enumerate(outside):
        angle = math.tau * number / len(outside)
        at[rank] = CIRCLE * math.sin(angle), CIRCLE * math.cos(angle)
    return at


def network(graph, title, *, pictures=None, values=None, written="{:+.2f}", axes=None):
    """The graph, its ranks as numbered dots or as what they hold: `pictures` [ranks, height, width]
    of greys from 0 to 1, or `values` [ranks] from -1, orange, to 1, violet, as they are `written`.
    Returns the axes.
    """
    axes, at = axes or panels(1, *PANEL)[0], places(graph)
    for a, b in graph.edges:
        axes.plot(*at[[a, b]].T, color="0.6", linewidth=1, zorder=1)
    for rank, (x, y) in enumerate(at):
        if pictures is not None:
            _hang(axes, pictures[rank], x, y, _room(at))
        elif values is not None:
            _number(axes, float(values[rank]), written, x, y)
        else:
            axes.plot(x, y, "o", ms=15, color=COLOURS[4], zorder=2)
            axes.text(x, y, rank, ha="center", va="center", fontsize=9)
    named(axes, title, "", "").set_axis_off()
    axes.set(xlim=(-ROOM, ROOM), ylim=(-ROOM, ROOM), aspect="equal")
    return axes


def play(graphs, held, film=()):
    """A slider over the rounds of a run, and each of `graphs` {label: graph} with what its ranks
    hold after the round that it shows: `held` {label: [rounds, ranks, height, width]}.  The film
    strip has the rounds of `film`.
    """
    apart = {label: disagreement(rounds) for label, rounds in held.items()}

    def draw(done):
        for axes, (label, graph) in zip(panels(len(graphs), *PANEL), graphs.items(), strict=True):
            title = f"{label} after {done} rounds: {float(apart[label][done]):.1%} is left"
            network(graph, title, pictures=held[label][done], axes=axes)

    rounds = min(map(len, held.values())) - 1
    moments = [{"done": done} for done in film]
    sliders(draw, film=moments, done=slider("rounds of gossip", 0, rounds, 0))


def _room(at) -> float:
    """The side of a picture that touches no other one."""
    apart = np.abs(at[:, None] - at[None]).max(axis=2)
    return min(0.97 * apart[apart > 0].min(initial=1.0), 0.5)


def _hang(axes, picture, x, y, side):
    """A picture in grey around (x, y), its longer side `side` long."""
    height, width = np.shape(picture)
    down, across = (side / 2 * each / max(height, width) for each in (height, width))
    extent = (x - across, x + across, y - down, y + down)
    axes.imshow(np.asarray(picture), "gray", vmin=0, vmax=1, extent=extent, zorder=2)


def _number(axes, value, written, x, y):
    """A number from -1 to 1 on a dot of its colour."""
    shade = colormaps["PuOr"](0.5 + 0.4 * value)
    axes.plot(x, y, "o", ms=27, markerfacecolor=shade, markeredgecolor="0.4", zorder=2)
    text = written.format(value).replace("-", "−") if abs(value) >= 0.005 else "0"
    ink = "white" if abs(value) > 0.7 else "black"
    axes.text(x, y, text, ha="center", va="center", fontsize=8, color=ink)
