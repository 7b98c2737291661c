"""Of which pieces a region is made, who owns each, and what they cost: a plan, as data.

owner 0   owner 1          a region asked for by rank 1, beyond the array's edge
+-------+-------+ - +      is made of pieces, each from one owner; the way back adds
|    ***|*******|** :      what the pieces of the region have become to the indices
|    ***|*******|** :      that they came from: the adjoint
+-------+-------+ - +
"""

import functools
import itertools
from typing import NamedTuple

from course.parallel.array.boxes import FILLS, Box, runs
from course.parallel.array.layout import Layout


class Piece(NamedTuple):
    """What `asker` gets of `owner`: the indices `source`, shown at `target`; both boxes are global.

    `steps` says of each axis whether it is shown as it is (1), in a mirror (-1), or one index
    again and again (0)."""

    owner: int
    asker: int
    source: Box
    target: Box
    steps: tuple

    def shown(self, block):
        """What was sent [source], as it is seen in the region [target]."""
        mirrored = [axis for axis, step in enumerate(self.steps) if step < 0]
        return (block.flip(mirrored) if mirrored else block).expand(self.target.shape)

    def returned(self, block):
        """The adjoint: what the region's part [target] adds to what was sent [source]."""
        again = [axis for axis, step in enumerate(self.steps) if step == 0]
        block = block.sum(again, keepdim=True) if again else block
        mirrored = [axis for axis, step in enumerate(self.steps) if step < 0]
        return block.flip(mirrored) if mirrored else block


def pieces(layout: Layout, asker: int, region: Box, fill: str = "zero") -> list[Piece]:
    """Of which pieces the `region` that rank `asker` asks for is made."""
    shown = [_along(cuts, *interval, fill) for cuts, interval in zip(layout.cuts, region.intervals)]
    found = []
    for parts in itertools.product(*shown):
        places, sources, targets, steps = zip(*parts)
        owner = layout.rank(places)
        found.append(Piece(owner, asker, Box.of(*sources), Box.of(*targets), steps))
    return found


@functools.lru_cache(4096)
def _along(cuts, start, stop, fill) -> list:
    """Of one axis: (part, source interval, target interval, step), of every run and every part."""
    found = []
    for run in runs(start, stop, cuts[-1], fill):
        last = run.first + run.step * (run.count - 1)
        low, high = min(run.first, last), max(run.first, last) + 1
        for part, (first, end) in enumerate(itertools.pairwise(cuts)):
            a, b = max(low, first), min(high, end)
            if a < b:
                found.append((part, (a, b), _shown_at(run, a, b), run.step))
    return found


def _shown_at(run, a, b) -> tuple:
    """Where the indices a to b of a run are shown."""
    if run.step == 0:
        return run.at, run.at + run.count
    offset = a - run.first if run.step > 0 else run.first - (b - 1)
    return run.at + offset, run.at + offset + b - a


@functools.lru_cache(256)
def exchange(layout: Layout, regions: tuple, fill: str) -> tuple:
    """Of every rank {owner: pieces that it gets}, and of every rank {asker: pieces that it gives}.

    All ranks need the same plan, and a program asks for it again at every step: it is kept.
    """
    got, given = ([{} for _ in regions] for _ in range(2))
    for asker, region in enumerate(regions):
        for piece in pieces(layout, asker, region, fill):
            got[asker].setdefault(piece.owner, []).append(piece)
            given[piece.owner].setdefault(asker, []).append(piece)
    return got, given


@functools.lru_cache(4096)
def shared(target: Box, boxes: tuple) -> list:
    """(number of the box, slices of it, slices of `target`) of all `boxes` that meet `target`."""
    met = [(number, box, box.meet(target)) for number, box in enumerate(boxes)]
    return [(n, both.within(box), both.within(target)) for n, box, both in met if both.size]


def cost(layout: Layout, regions, fill="zero") -> list:
    """(elements sent, elements received, messages sent) of every rank, of a fetch; its adjoint
    sends as much the other way.  What a rank has itself does not travel."""
    return [
        (_travelling(given, rank), _travelling(got, rank), len(given.keys() - {rank}))
        for rank, (got, given) in enumerate(zip(*exchange(layout, tuple(regions), fill)))
    ]


def _travelling(pieces_by_rank, rank) -> int:
    others = (found for other, found in pieces_by_rank.items() if other != rank)
    return sum(piece.source.size for found in others for piece in found)


def check_regions(layout, regions, fill, rank):
    """Raises ValueError, of rank `rank`, for what cannot be fetched."""
    shape = layout.shape
    if fill not in FILLS:
        known = ", ".join(FILLS)
        raise ValueError(f"rank {rank}: beyond the edges there is {known}, not {fill!r}")
    if len(regions) != layout.ranks:
        raise ValueError(
            f"rank {rank}: {layout.ranks} ranks ask for a region each, not {len(regions)}"
        )
    for asker, region in enumerate(regions):
        if len(region.starts) != len(shape):
            asked = f"the region {region}, with {len(region.starts)} axes"
            raise ValueError(
                f"rank {asker} asks for {asked}, of an array of shape {shape}, with {len(shape)}"
            )
        if fill != "zero" and region.size and 0 in shape:
            raise ValueError(f"rank {asker} asks for {region} of an array of shape {shape}, which "
                             f"has nothing to fill it with")  # fmt: skip
