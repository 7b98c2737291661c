"""Parameters side by side in one flat tensor, of which each rank has its part for good.

The cut is through the flat tensor, as evenly as can be, wherever parameters begin and end in it; so
a rank has nothing of most of them, and its optimizer sees each as a vector of what it has.
"""

import itertools

import torch
from torch import nn

from course.collectives.ring import chunk_lengths
from course.parallel.data.buckets import as_real, real_elements, shaped
from course.parallel.sharded.freed import Freed, without_values
from course.parallel.sharded.pieces import pass_on


class FlatShards:
    """`parameters` (one dtype) as parts of one tensor, `whole` [elements], cut in p `pieces`.

    spans {parameter: [(start, stop) of its elements that rank r has]}; shards {parameter: this
    rank's part [stop - start]}, all of them parts of `own`: in the pieces themselves, or beside
    them in stage 3, where whole is freed.  Shards of half types that are trained are float32.
    gradient [as own]: that of the mean, when it is there.
    Complex numbers count as pairs.  `sentence`: what a freed parameter says.
    """

    def __init__(self, parameters, comm, stage, sentence):
        self.rank, self.stage, self.gradient, self.under_way = comm.rank, stage, None, False
        flat = [as_real(p.detach()).reshape(-1) for p in parameters]
        self.whole = torch.cat(flat)
        lengths = chunk_lengths(len(self.whole), comm.size)
        self.pieces = self.whole.split(lengths)
        parts = self.whole.split([len(part) for part in flat])
        self.views = {p: shaped(part, p) for p, part in zip(parameters, parts)}
        for p, view in self.views.items():
            p.data = view
        self.spans = dict(zip(parameters, _spans([len(part) for part in flat], lengths)))
        self.own = self._own()
        self.shards = self._shards()
        self.freed = type("Freed", (Freed,), {"sentence": sentence})
        self.types = {p: (type(p), without_values(p)) for p in parameters} if stage == 3 else {}

    @property
    def mastered(self) -> bool:
        """Whether what is trained has more digits than what computes."""
        return self.own.dtype != self.whole.dtype

    @property
    def trained(self) -> bool:
        """Whether any of the parameters is."""
        return any(p.requires_grad for p in self.views)

    def gather(self, comm):
        """What the owners have is everybody's.  Cost: an all-gather of `whole`.

        In stage 3 under another name: memory that a message has carried could not be freed.
        """
        if self.stage == 3:
            self.whole.untyped_storage().resize_(self.whole.nbytes)
        arriving = _by_another_name(self.whole) if self.stage == 3 else self.whole
        pieces = arriving.split([len(piece) for piece in self.pieces])
        if self.mastered or self.stage == 3:
            pieces[self.rank].copy_(self.own)
        before, self.under_way = self.under_way, True  # and for ever, if it fails
        pass_on(comm, pieces)
        self.under_way = before

    def restore(self):
        """The parameters have the values of `whole` again."""
        for p, view in self.views.items():
            p.__class__, p.data = self.types[p][0], view

    def free(self):
        """The parameters have no values, and the memory of `whole` is given back, unless a message
        of a gather that failed may still land there."""
        for p, (_, nothing) in self.types.items():
            p.data, p.__class__ = nothing, self.freed
        if not self.under_way:
            self.whole.untyped_storage().resize_(0)

    def required_in_place(self, names):
        """Raises RuntimeError if a parameter is not a part of `whole` any more."""
        memory = self.whole.untyped_storage()._cdata
        for p in self.views:
            if p.untyped_storage()._cdata != memory:
                raise RuntimeError(
                    f"rank {self.rank}: {names[p]} was cast, moved or assigned since it was "
                    "sharded, and is not trained: do so before"
                )

    def hand_out(self, parameters):
        """Give the shards of `parameters` their parts of `gradient`, or add these to what is there
        from an earlier backward."""
        first = self._first()
        for p in parameters:
            start, stop = self.spans[p][self.rank]
            part, shard = self.gradient[first[p] : first[p] + stop - start], self.shards[p]
            if shard.grad is None:
                shard.grad_dtype = part.dtype
                shard.grad = part
            else:
                shard.grad.add_(part)

    def whole_of(self, comm, own) -> dict:
        """{parameter: [its shape]} of everybody's `own` [as own].  Cost: an all-gather."""
        flat = own.new_empty(len(self.whole))
        pieces = flat.split([len(piece) for piece in self.pieces])
        pieces[self.rank].copy_(own)
        pass_on(comm, pieces)
        parts = flat.split([real_elements(p) for p in self.views])
        return {p: shaped(part, p) for p, part in zip(self.views, parts)}

    def _own(self):
        piece = self.pieces[self.rank]
        if self.trained and piece.is_floating_point() and piece.dtype.itemsize < 4:
            return piece.float()
        return piece.clone() if self.stage == 3 else piece

    def _shards(self) -> dict:
        lengths = [stop - start for start, stop in (s[self.rank] for s in self.spans.values())]
        return {p: nn.Parameter(part, requires_grad=p.requires_grad)
                for p, part in zip(self.views, self.own.split(lengths))}  # fmt: skip

    def _first(self) -> dict:
        """Where in `own` the part of each parameter begins."""
        lengths = [stop - start for start, stop in (s[self.rank] for s in self.spans.values())]
        return dict(zip(self.views, itertools.accumulate(lengths, initial=0)))


def _by_another_name(x):
    """A tensor of the same memory, which `x` may free: torch marks that of which it is asked for as
    an array, as messages do, and only on the CPU."""
    return torch.from_dlpack(x) if x.device.type == "cpu" else x


def _spans(sizes, lengths) -> list:
    """Of parameters of `sizes` side by side, cut in pieces of `lengths`: [[(start, stop), ...] of
    each parameter on each rank], within the parameter."""
    ends, stops = [*itertools.accumulate(sizes)], [*itertools.accumulate(lengths)]
    return [
        [(min(max(stop - length - (end - size), 0), size), min(max(stop - (end - size), 0), size))
         for length, stop in zip(lengths, stops)]
        for size, end in zip(sizes, ends)
    ]  # fmt: skip
