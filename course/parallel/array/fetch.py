"""Any box of a distributed array for any rank: who sends which piece to whom, and back again.

    owner 0   owner 1          a region asked for by rank 1, beyond the array's edge
    +-------+-------+ - +      is made of pieces, each from one owner; the way back adds
    |    ***|*******|** :      what the pieces of the region have become to the indices
    |    ***|*******|** :      that they came from: the adjoint
    +-------+-------+ - +
"""

import functools
import itertools
from typing import NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

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


class Fetch:
    """One rank's part in a fetch, from `begin` to `finish`, and its adjoint on the way back.

    `regions` has the box of every rank.  Every owner sends an asker one message with all that it
    has of its region.  Cost: `cost`.
    """

    def __init__(self, comm, layout: Layout, regions, fill="zero"):
        self.comm, self.mine = comm, layout.box(comm.rank)
        self.region = regions[comm.rank]
        wanted = pieces(layout, comm.rank, self.region, fill)
        self.incoming = _by(wanted, lambda piece: piece.owner)
        asked = (pieces(layout, rank, region, fill) for rank, region in enumerate(regions))
        given = [piece for each in asked for piece in each if piece.owner == comm.rank]
        self.outgoing = _by(given, lambda piece: piece.asker)
        self.handles, self.blocks, self.slope = [], {}, None

    def begin(self, local):
        """Begin to send what others ask of `local`, this rank's part, and to receive."""
        give = {rank: [local[p.source.within(self.mine)] for p in asked]
                for rank, asked in self.outgoing.items()}  # fmt: skip
        self.blocks = self._begin("fetch", local, give, self.incoming)

    def finish(self, like) -> torch.Tensor:
        """This rank's region."""
        self._wait()
        whole = like.new_zeros(self.region.shape)
        for piece, block in self._arrived(self.incoming):
            whole[piece.target.within(self.region)] = piece.shown(block)
        return whole

    def begin_adjoint(self, slope):
        """Begin to send back what each piece of the region [region] has become."""
        give = {rank: [p.returned(slope[p.target.within(self.region)]) for p in wanted]
                for rank, wanted in self.incoming.items()}  # fmt: skip
        self.blocks = self._begin("adjoint of fetch", slope, give, self.outgoing)

    def finish_adjoint(self, like) -> torch.Tensor:
        """What all regions together add to this rank's part."""
        self._wait()
        whole = like.new_zeros(self.mine.shape)
        for piece, block in self._arrived(self.outgoing):
            whole[piece.source.within(self.mine)] += block
        return whole

    def _begin(self, name, like, give, take) -> dict:
        """Post a message for each rank in `give` {rank: blocks}, and one from each in `take`."""
        comm, flat = self.comm, {}
        with comm.collective(name):
            for rank, wanted in take.items():
                flat[rank] = like.new_empty(sum(p.source.size for p in wanted))
            for rank, blocks in give.items():
                packed = torch.cat([block.reshape(-1) for block in blocks])
                if rank == comm.rank:
                    flat[rank] = packed
                else:
                    self.handles.append(comm.isend(packed, rank))
            self.handles += [comm.irecv(flat[rank], rank) for rank in take if rank != comm.rank]
        return flat

    def _wait(self):
        for handle in self.handles:
            handle.wait()
        self.handles = []

    def _arrived(self, expected):
        for rank, wanted in expected.items():
            blocks = self.blocks[rank].split([p.source.size for p in wanted])
            yield from ((p, block.view(p.source.shape)) for p, block in zip(wanted, blocks))
        self.blocks = {}


def _by(found, key) -> dict:
    groups = {}
    for piece in found:
        groups.setdefault(key(piece), []).append(piece)
    return groups


class Begin(Function):
    """Sends the borders; on the way back, the last to be there: adds up what comes from them.

    What it returns, a tensor of nothing, is there so that `Finish` comes after it, and on the way
    back before it: what is computed between the two hides both journeys."""

    @staticmethod
    def forward(ctx, local, fetch):
        ctx.fetch = fetch
        ctx.like = local.new_empty(0)
        fetch.begin(local)
        return local.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        return ctx.fetch.finish_adjoint(ctx.like), None


class Finish(Function):
    """Waits for the borders; on the way back, the first to be there: sends them back."""

    @staticmethod
    def forward(ctx, begun, fetch):
        ctx.fetch = fetch
        return fetch.finish(begun)

    @staticmethod
    @once_differentiable
    def backward(ctx, slope):
        ctx.fetch.begin_adjoint(slope)
        return slope.new_zeros(0), None


def cost(layout: Layout, regions, fill="zero") -> list:
    """(elements sent, elements received, messages sent) of every rank, of a fetch; its adjoint
    sends as much the other way.  What a rank has itself does not travel."""
    sent, got, pairs = ([0] * layout.ranks for _ in range(3))
    for rank, region in enumerate(regions):
        travelling = [p for p in pieces(layout, rank, region, fill) if p.owner != rank]
        for piece in travelling:
            sent[piece.owner] += piece.source.size
            got[rank] += piece.source.size
        for owner in {piece.owner for piece in travelling}:
            pairs[owner] += 1
    return list(zip(sent, got, pairs))


def check_regions(comm, layout, regions, fill):
    """Raises ValueError for what cannot be fetched."""
    shape, rank = layout.shape, comm.rank
    if fill not in FILLS:
        raise ValueError(f"rank {rank}: beyond the edges there is {', '.join(FILLS)}, not {fill!r}")
    if len(regions) != comm.size:
        raise ValueError(f"rank {rank}: {comm.size} ranks ask for a region each, not {len(regions)}")
    for asker, region in enumerate(regions):
        if len(region.starts) != len(shape):
            raise ValueError(f"rank {asker} asks for the region {region}, with {len(region.starts)} "
                             f"axes, of an array of shape {shape}, with {len(shape)}")  # fmt: skip
        if fill != "zero" and region.size and 0 in shape:
            raise ValueError(f"rank {asker} asks for {region} of an array of shape {shape}, which "
                             f"has nothing to fill it with")  # fmt: skip
