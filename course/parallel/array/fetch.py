"""Any box of a distributed array for any rank: begun, waited for, and sent back as its adjoint."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from course.parallel.array.layout import Layout
from course.parallel.array.pieces import exchange


class Fetch:
    """One rank's part in a fetch, from `begin` to `finish`, and its adjoint on the way back.

    `regions` has the box of every rank.  Every owner sends an asker one message with all that it
    has of its region.  Cost: `pieces.cost`.
    """

    def __init__(self, comm, layout: Layout, regions, fill="zero"):
        self.comm, self.mine = comm, layout.box(comm.rank)
        self.region = regions[comm.rank]
        got, given = exchange(layout, tuple(regions), fill)
        self.incoming, self.outgoing = got[comm.rank], given[comm.rank]
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
