"""One weird trick: convolutions by data parallel, fully connected layers by model parallel.

Convolutions have most of the work and few weights: every rank has them all, and its own examples.
Fully connected layers have most of the weights: every rank has some of their outputs (`CutLinear`),
for the examples of all.  Between them the examples' activations travel, by one of three schemes:

a   all examples of all ranks at once
b   all examples of one rank in each round, of p rounds
c   a p-th of the examples of every rank in each round: every link carries the same all the time

In b and c the next round's activations, and the last one's slopes, travel while a round computes.
Source: Krizhevsky 2014, «One weird trick for parallelizing convolutional neural networks».
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

from course.collectives import all_gather, broadcast, cost, reduce, reduce_scatter
from course.parallel.array.layout import even_cuts
from course.parallel.tensor.cut import Cut, CutLayer, lengths, required_layer
from course.parallel.tensor.sequence import Gathered

SCHEMES = {
    "a": lambda rows: [[(0, n) for n in rows]],
    "b": lambda rows: [[(0, n * (rank == turn)) for rank, n in enumerate(rows)]
                       for turn in range(len(rows))],
    "c": lambda rows: [[even_cuts(n, len(rows))[turn : turn + 2] for n in rows]
                       for turn in range(len(rows))],
}  # fmt: skip


class Trained(NamedTuple):
    """The mean loss [] over the rows of all ranks, and its slopes [rows, ...] by this rank's."""

    loss: torch.Tensor
    slope: torch.Tensor


def rounds(scheme: str, rows) -> list[list[tuple]]:
    """The plan: in each round, which of its `rows` each rank shows to all, as (start, stop).

    Rounds without a row are left out.  Raises ValueError for a scheme that there is not.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"the schemes are {', '.join(SCHEMES)}, not {scheme!r}")
    plan = [[tuple(share) for share in shares] for shares in SCHEMES[scheme](rows)]
    return [shares for shares in plan if any(start < stop for start, stop in shares)]


def train_in_rounds(comm, top, loss, x, y, *, scheme="c", update=None) -> Trained:
    """Show x [rows, ...], the activations of this rank's examples, to `top`, whose layers are cut
    over all ranks, round by round; loss(top(x), y) is a mean over rows, y [rows, ...] their labels.

    The gradients of `top` gather over the rounds to that of the mean loss over all rows; or, with
    `update()`, called after each round, they are that round's own, to be used at once and cleared:
    the batch of `top` is then a p-th of the batch of what is below.  Either way `x.backward(slope)`
    follows, and what is below sums its gradients over ranks (`SummedGradients`).  What stands
    between the layers of `top` does the same on all ranks: dropout would need one seed for all.
    Cost: `weird_trick_cost`.  Raises ValueError for a scheme that there is not, and unless every
    row has a label.
    """
    if len(y) != len(x):
        raise ValueError(f"rank {comm.rank}: {len(x)} rows have a label each: not {len(y)}")
    counts = [torch.zeros(1, dtype=torch.long, device="cpu") for _ in range(comm.size)]
    all_gather(comm, counts, torch.tensor([len(x)], device="cpu"))
    plan, total = rounds(scheme, [int(n) for n in counts]), sum(int(n) for n in counts)
    whole, returns = x.new_zeros(()), []
    shown = [_show(comm, shares, x, y) for shares in plan[:1]]
    for number, shares in enumerate(plan):
        seen, labels = shown.pop().wait()
        shown += [_show(comm, later, x, y) for later in plan[number + 1 : number + 2]]
        part = len(seen) / total
        mean = loss(top(seen.requires_grad_()), labels)
        (mean if update else mean * part).backward()
        returns.append(_return(comm, shares, seen.grad * (part if update else 1)))
        if update:
            update()
        whole += mean.detach() * part
    slopes = [x.new_empty(0, *x.shape[1:]), *(future.wait() for future in returns)]
    return Trained(whole, torch.cat(slopes))


def weird_trick_cost(scheme, rows, row_bytes, label_bytes, outputs, element_bytes) -> cost.Cost:
    """Cost of `train_in_rounds`: rows (a number for each rank) of `row_bytes`, labels, and a `top`
    of CutLinears of so many `outputs`.

    Of activations alone a rank sends N (p-1)/p in a round of c, for its N bytes, and as many of
    slopes; p N (p-1)/p at once in a.
    """
    p = len(rows)
    whole = cost.all_gather([8] * p)
    for shares in rounds(scheme, rows):
        seen = [stop - start for start, stop in shares]
        for nbytes in row_bytes, label_bytes:
            whole = whole.then(_travel_cost(seen, nbytes, cost.broadcast, cost.all_gather))
        cuts = [lengths(even_cuts(n, p)) for n in outputs]
        parts = [[n * sum(seen) * element_bytes for n in own] for own in cuts]
        for own in parts:
            whole = whole.then(cost.all_gather(own))
        for own in parts[:-1]:
            whole = whole.then(cost.reduce_scatter(own))
        whole = whole.then(_travel_cost(seen, row_bytes, cost.reduce, cost.reduce_scatter))
    return whole


class CutLinear(CutLayer):
    """The outputs of `layer`, a linear one, cut over the ranks of `comm`: x [rows, inputs], alike
    on all, to all outputs [rows, outputs] on all.

    On the way back each rank has its own part of the slope by x, and nobody their sum; the layer
    below, cut too, adds them up where it needs them.  `last`: what follows is no cut layer, but the
    same on all ranks, and the slope that comes is whole.  What is frozen stays so.
    Cost: an all-gather of the outputs; unless it is the last, a reduce-scatter of their slopes.
    """

    def __init__(self, comm, layer, *, last=False):
        super().__init__(comm, None)
        outputs = required_layer(comm, layer, nn.Linear).out_features
        self.last, self.cuts = last, even_cuts(outputs, comm.size)
        for name in "weight", "bias":
            self.keep(name, getattr(layer, name), Cut(0, self.cuts))

    def forward(self, x):
        collect = Shown if self.last else Gathered
        return collect.apply(linear(x, self.weight, self.bias), self.comm, self.cuts, 1)


class Shown(Gathered):
    """The parts of all ranks as one, used alike on all: back, one's own is cut out of the slope."""

    @staticmethod
    def backward(ctx, slope):
        comm, cuts, axis = ctx.how
        return slope.split(lengths(cuts), axis)[comm.rank], None, None, None


def _show(comm, shares, x, y):
    """Begin to show all ranks the rows of a round; a future of them and their labels."""
    own = slice(*shares[comm.rank])
    return comm.submit(_gather_round, shares, x.detach()[own].clone(), y[own].clone())


def _gather_round(comm, shares, *own):
    return [_gather_rows(comm, shares, each) for each in own]


def _gather_rows(comm, shares, own):
    """The rows of all ranks in a round [rows, ...]: by broadcast where only one has some."""
    counts, root = [stop - start for start, stop in shares], _only(shares)
    outs = [own.new_empty(n, *own.shape[1:]) for n in counts]
    if root is None:
        all_gather(comm, outs, own)
    else:
        outs[comm.rank] = own
        broadcast(comm, outs[root], root)
    return torch.cat(outs)


def _return(comm, shares, slope):
    """Begin to add up what all ranks have of the slopes of a round; a future of this rank's."""
    return comm.submit(_return_round, shares, slope)


def _return_round(comm, shares, slope):
    parts, root = list(slope.split([stop - start for start, stop in shares])), _only(shares)
    if root is None:
        own = torch.empty_like(parts[comm.rank])
        reduce_scatter(comm, own, parts)
        return own
    reduce(comm, parts[root], root=root)
    return parts[comm.rank].clone()


def _only(shares):
    """The rank that alone has rows in a round; None if there are more."""
    having = [rank for rank, (start, stop) in enumerate(shares) if start < stop]
    return having[0] if len(having) == 1 else None


def _travel_cost(seen, row_bytes, one, all_of_them):
    """Of the rows of a round, by the formula of `one` rank's or of `all_of_them`."""
    having = [rank for rank, n in enumerate(seen) if n]
    if len(having) == 1:
        return one(len(seen), seen[having[0]] * row_bytes, having[0])
    return all_of_them([n * row_bytes for n in seen])
