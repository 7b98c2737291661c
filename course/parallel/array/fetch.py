"""Any box of a distributed array for any rank: begun, waited for, and sent back as its adjoint."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from course.parallel.array.layout import Layout
from course.parallel.array.pieces import exchange, shared


class Fetch:
    """One rank's part in a fetch, from `begin` to `finish`, and its adjoint on the way back.

    `regions` has the box of every rank.  Every owner sends an asker one message with all that it
    has of its region.  This rank gets `boxes` of its region, all of it by default; what it has of
    them itself is copied once.  Cost: `pieces.cost`.
    """

    def __init__(self, comm, layout: Layout, regions, fill="zero", boxes=None):
        self.comm, self.mine = comm, layout.box(comm.rank)
        self.boxes = (regions[comm.rank],) if boxes is None else tuple(boxes)
        got, given = (plan[comm.rank] for plan in exchange(layout, tuple(regions), fill))
        self.own = got.get(comm.rank, [])
        self.incoming, self.outgoing = (
            {rank: pieces for rank, pieces in plan.items() if rank != comm.rank}
            for plan in (got, given)
        )
        self.handles, self.blocks, self.made = [], {}, []

    def begin(self, local):
        """Begin to send what others ask of `local`, this rank's part, and to receive."""
        give = {rank: [local[p.source.within(self.mine)] for p in asked]
                for rank, asked in self.outgoing.items()}  # fmt: skip
        self.blocks = self._begin("fetch", local, give, self.incoming)
        self.made = [_zeros(local, box.shape) for box in self.boxes]
        for piece in self.own:
            self._show(piece, local[piece.source.within(self.mine)])

    def finish(self) -> tuple:
        """The boxes."""
        self._wait()
        for piece, block in self._arrived(self.incoming):
            self._show(piece, block)
        made, self.made = tuple(self.made), []
        return made

    def begin_adjoint(self, slopes):
        """Begin to send back what each piece has become, by the slopes of the boxes."""
        give = {rank: [p.returned(self._slope(p, slopes)) for p in wanted]
                for rank, wanted in self.incoming.items()}  # fmt: skip
        self.blocks = self._begin("adjoint of fetch", slopes[0], give, self.outgoing)
        self.made = [_zeros(slopes[0], self.mine.shape)]
        for piece in self.own:
            self._add(piece, piece.returned(self._slope(piece, slopes)))

    def finish_adjoint(self) -> torch.Tensor:
        """What all regions together add to this rank's part."""
        self._wait()
        for piece, block in self._arrived(self.outgoing):
            self._add(piece, block)
        return self.made.pop()

    def _show(self, piece, block):
        shown = piece.shown(block)
        for number, there, here in shared(piece.target, self.boxes):
            self.made[number][there] = shown[here]

    def _slope(self, piece, slopes):
        """What the boxes together say of a piece [target]."""
        slope = _zeros(slopes[0], piece.target.shape)
        for number, there, here in shared(piece.target, self.boxes):
            slope[here] += slopes[number][there]
        return slope

    def _add(self, piece, block):
        self.made[0][piece.source.within(self.mine)] += block

    def _begin(self, name, like, give, take) -> dict:
        """Post a message for each rank in `give` {rank: blocks}, and one from each in `take`."""
        comm, flat = self.comm, {}
        with comm.collective(name):
            for rank, blocks in give.items():
                packed = torch.cat([block.reshape(-1) for block in blocks])
                self.handles.append(comm.isend(packed, rank))
            for rank, wanted in take.items():
                flat[rank] = like.new_empty(sum(p.source.size for p in wanted))
                self.handles.append(comm.irecv(flat[rank], rank))
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


def _zeros(like, shape):
    return torch.zeros(shape, dtype=like.dtype, device=like.device)


class Begin(Function):
    """Sends the borders; on the way back, the last to be there: adds up what comes from them.

    What it returns, a tensor of nothing, is there so that `Finish` comes after it, and on the way
    back before it: what is computed between the two hides both journeys."""

    @staticmethod
    def forward(ctx, local, fetch):
        ctx.fetch = fetch
        fetch.begin(local)
        return local.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        return ctx.fetch.finish_adjoint(), None


class Finish(Function):
    """Waits for the borders; on the way back, the first to be there: sends them back."""

    @staticmethod
    def forward(ctx, begun, fetch):
        ctx.fetch = fetch
        return fetch.finish()

    @staticmethod
    @once_differentiable
    def backward(ctx, *slopes):
        ctx.fetch.begin_adjoint(slopes)
        return slopes[0].new_zeros(0), None
