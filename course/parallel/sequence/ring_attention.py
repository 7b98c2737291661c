"""Attention over a sequence of which every rank has a part: keys and values go round a ring.

    rank 0: q0   k0 v0 -> k3 v3 -> k2 v2 -> k1 v1      each rank's queries meet all keys, one block
    rank 1: q1   k1 v1 -> k0 v0 -> k3 v3 -> k2 v2      at a time; the next block travels while this
    ...                                                one is used

On the way back blocks go round once more, and the slopes of each travel with it, as sums, until
they are at home.  Exact: no score is left out.  Memory of a rank: its part and two blocks, O(n/p).
Source: Liu et al. 2023, «Ring Attention with Blockwise Transformers for Near-Infinite Context».
"""

import contextlib
import math
from typing import NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from course.parallel.sequence.blocks import attend, join, slopes, tiles
from course.parallel.sequence.cut import SequenceCut


def ring_attention(comm, q, k, v, cut: SequenceCut, *, causal=False, scale=None):
    """softmax(scale q k^T) v over the whole sequence, for the queries of this rank.

    q, k [..., own positions, dim] and v [..., own positions, dim of v] are in the order of `cut`;
    with `causal` a query sees no key behind it.  `scale` is 1 / sqrt(dim) by default.
    Cost: each rank sends p - 1 blocks of keys and values, and on the way back these again and p
    blocks of slopes: `cost`.  Raises ValueError for shapes that do not fit the cut.
    """
    cut.check(comm)
    _check_shapes(comm, q, k, v, cut)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    with _exactly(q.device.type):
        return _RingAttention.apply(q, k, v, Ring(comm, cut, causal, scale))


def cost(cut: SequenceCut, elements: int) -> list:
    """(elements sent there, elements sent on the way back) of each rank, where a position has
    `elements` numbers of keys and values."""
    ranks, right = len(cut.parts), cut.parts[1:] + cut.parts[:1]
    if ranks == 1:
        return [(0, 0)]
    counts = [sum(stop - start for start, stop in part) for part in right]
    blocks = [elements * (cut.length - count) for count in counts]
    return [(block, block + elements * cut.length) for block in blocks]


class Ring(NamedTuple):
    """Blocks [..., positions, numbers] go round `comm`, and meet the queries of each rank."""

    comm: object
    cut: SequenceCut
    causal: bool
    scale: float

    def call(self, name):
        """The messages of one journey."""
        return self.comm.collective(name, causal=self.causal, cut=str(self.cut.parts))

    def owner(self, step) -> int:
        """Whose block is here at `step`."""
        return (self.comm.rank - step) % self.comm.size

    def tiles(self, owner):
        """What of this rank's queries is to meet what of a block."""
        return tiles(self.cut.parts[self.comm.rank], self.cut.parts[owner], self.causal)

    def pass_on(self, block, step):
        """Begin to send a block right and to receive that of the next step: (it, both handles)."""
        shape = (*block.shape[:-2], self.cut.count(self.owner(step + 1)), block.shape[-1])
        coming, (left, right) = block.new_empty(shape), (self.owner(1), self.owner(-1))
        return coming, (self.comm.irecv(coming, left), self.comm.isend(block, right))

    def round(self, block):
        """(step, owner, block) of each step; the next one is on its way while this one is used."""
        for step in range(self.comm.size):
            coming, handles = block, ()
            if step < self.comm.size - 1:
                coming, handles = self.pass_on(block, step)
            yield step, self.owner(step), block
            for handle in handles:
                handle.wait()
            block = coming


class _RingAttention(Function):
    @staticmethod
    def forward(ctx, q, k, v, ring):
        wide, queries = _wide(q), q.to(_wide(q))
        answers = q.new_zeros((*q.shape[:-1], v.shape[-1]), dtype=wide)
        logs = q.new_full((*q.shape[:-1], 1), -torch.inf, dtype=wide)
        with ring.call("ring attention"):
            for _, owner, block in ring.round(torch.cat([k, v], -1).contiguous()):
                both = block.to(wide).split([k.shape[-1], v.shape[-1]], -1)
                for tile in ring.tiles(owner):
                    some = attend(queries, *both, tile, ring.scale)
                    join(answers[..., tile.rows, :], logs[..., tile.rows, :], *some)
        ctx.ring, out = ring, answers.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, logs)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, slope):
        ring, (q, k, v, out, logs) = ctx.ring, ctx.saved_tensors
        saved = logs, slope.to(logs.dtype), (slope * out.to(logs.dtype)).sum(-1, keepdim=True)
        of_q, sums, handles = torch.zeros_like(q, dtype=logs.dtype), 0, ()
        with _exactly(q.device.type), ring.call("adjoint of ring attention"):
            for step, owner, block in ring.round(torch.cat([k, v], -1).contiguous()):
                mine = _slopes_of(ring, owner, block.to(logs.dtype), q.to(logs.dtype), of_q, saved)
                for handle in handles:  # what the ranks before have added to this block's
                    handle.wait()
                sums, handles = mine + sums, ()
                if ring.comm.size > 1:
                    sums, handles = ring.pass_on(sums, step)
            for handle in handles:
                handle.wait()
        of_k, of_v = sums.split([k.shape[-1], v.shape[-1]], -1)
        return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype), None


def _slopes_of(ring, owner, block, q, of_q, saved):
    """What this rank adds to the slopes of a block; those of its queries are added to `of_q`."""
    dims, mine = [q.shape[-1], block.shape[-1] - q.shape[-1]], torch.zeros_like(block)
    (k, v), parts = block.split(dims, -1), mine.split(dims, -1)
    for tile in ring.tiles(owner):
        rows, *columns = slopes(q, k, v, tile, ring.scale, saved)
        of_q[..., tile.rows, :] += rows
        for whole, some in zip(parts, columns):
            whole[..., tile.columns, :] += some
    return mine


def _exactly(device):
    """Without autocast, which would make scores in half; some devices know of none."""
    known = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if known else contextlib.nullcontext()


def _wide(x):
    """What sums are made in: float32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def _check_shapes(comm, q, k, v, cut):
    own = cut.count(comm.rank)
    if not q.shape[:-1] == k.shape[:-1] == v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"rank {comm.rank}: q, k and v agree but for the last axis of v: {shapes}")
    if q.ndim < 2 or q.shape[-2] != own:
        raise ValueError(f"rank {comm.rank} has {own} positions of the cut, and the shape of q is "
                         f"{tuple(q.shape)}: its last axis but one has them")  # fmt: skip
    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"rank {comm.rank}: q, k and v are of one floating type, not {q.dtype}, "
                         f"{k.dtype} and {v.dtype}")  # fmt: skip
