"""One stage on its rank: what it keeps of a micro-batch between its forward and its backward."""

import functools
from typing import NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from course.parallel.pipeline.parcels import mapped
from course.parallel.pipeline.split_backward import SplitBackward


class Arrived(Function):
    """A tensor that came in, as a part of this stage's graph that may be changed in place; on the
    way back its slope ends here, in `slopes` {number: slope}."""

    @staticmethod
    def forward(ctx, anchor, held, slopes, number):
        ctx.slopes, ctx.number = slopes, number
        return held.pop()

    @staticmethod
    def backward(ctx, slope):
        ctx.slopes[ctx.number] = slope
        return None, None, None, None


class Kept(NamedTuple):
    """Of one forward: the `outputs` that have a gradient, the edges of its graph where what came in
    begins, {number: edge}, and the `slopes` that these have come to."""

    outputs: list
    edges: dict
    slopes: dict


class Stage:
    """`module` at work on micro-batches; `kept` {micro-batch: Kept} are the live ones.

    With `recompute` only what came in is kept, and the forward is done again for backward: with
    the same random numbers, and with the buffers as they were.
    """

    def __init__(self, module, recompute=False):
        self.module, self.recompute = module, recompute
        self.kept, self.split = {}, {}

    def arrive(self, tensors, differentiable) -> tuple:
        """The tensors that came in, ready for `forward`, and their edges, slopes to be."""
        edges, slopes, ready = {}, {}, []
        for number, (x, wanted) in enumerate(zip(tensors, differentiable)):
            if wanted:
                anchor = torch.zeros(0, device="cpu", requires_grad=True)
                x = Arrived.apply(anchor, [x], slopes, number)
                edges[number] = get_gradient_edge(x)
            ready.append(x)
        return ready, edges, slopes

    def forward(self, micro_batch, args, kwargs):
        """What the module gives for a micro-batch."""
        if not (self.recompute and torch.is_grad_enabled()):
            return self.module(*args, **kwargs)
        again = functools.partial(_Again(self.module), **kwargs)
        return checkpoint(again, *args, use_reentrant=False)

    def keep(self, micro_batch, outputs, edges, slopes):
        """Keep the tensors `outputs` for their backward."""
        self.kept[micro_batch] = Kept([x for x in outputs if x.requires_grad], edges, slopes)

    def backward(self, micro_batch, slopes) -> dict:
        """Add the gradients of the weights; {number: slope} of what came in.

        `slopes` are those of the outputs kept, None for a scalar's 1.
        """
        outputs, edges, came = self.kept.pop(micro_batch)
        if outputs:
            torch.autograd.backward(outputs, slopes)
        return {number: came.get(number) for number in edges}

    def backward_input(self, micro_batch, slopes) -> dict:
        """The first half: {number: slope} of what came in."""
        outputs, edges, _ = self.kept[micro_batch]
        split = self.split[micro_batch] = SplitBackward(outputs, slopes, [*edges.values()])
        return dict(zip(edges, split.input_gradients()))

    def backward_weight(self, micro_batch):
        """The second half: add the gradients of the weights."""
        self.split.pop(micro_batch).accumulate()
        del self.kept[micro_batch]


class _Again:
    """A module's forward that may be done a second time: with the buffers of the first, and with
    what came in, of which the module gets copies, since it may change these."""

    def __init__(self, module):
        self.module, self.buffers = module, None

    def __call__(self, *args, **kwargs):
        args, kwargs = mapped(torch.clone, (args, kwargs))
        if self.buffers is None:
            self.buffers = {name: x.clone() for name, x in self.module.named_buffers()}
            return self.module(*args, **kwargs)
        buffers = {name: x.clone() for name, x in self.buffers.items()}
        return functional_call(self.module, buffers, args, kwargs)
