"""One stage on its rank: what it keeps of a micro-batch between its forward and its backward."""

import functools
from typing import NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call

from course.parallel.pipeline.parcels import Parcel, unpack
from course.parallel.pipeline.schedule import INPUT
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


class Departed(Function):
    """Tensors that went out; on the way back, which begins here, they have the `slopes`."""

    @staticmethod
    def forward(ctx, slopes, *outputs):
        ctx.slopes = slopes
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return None, *ctx.slopes


class Kept(NamedTuple):
    """Of one forward: where its backward begins, the slopes to begin with (none of a loss), and
    where it ends: {number of a tensor that came in: its edge}, and {number: slope}."""

    root: torch.Tensor | None
    given: list
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

    def forward(self, micro_batch, parcels, finish):
        """What the module gives for `parcels` {source: Parcel}; `finish(output)`: the tensors of
        it that a backward begins with."""
        call = functools.partial(self.call, micro_batch)
        if not torch.is_grad_enabled():
            return _run(call, parcels, finish)[0]
        if self.recompute:
            before = _random_state(), {k: x.clone() for k, x in self.module.named_buffers()}
            self.kept[micro_batch] = functools.partial(self._again, *before, parcels, finish)
            parcels = {
                k: Parcel(p.text, [x.clone() for x in p.tensors]) for k, p in parcels.items()
            }
            return _run(call, parcels, finish)[0]
        out, self.kept[micro_batch] = _run(call, parcels, finish)
        return out

    def call(self, micro_batch, args, kwargs):
        """What the module gives for these arguments."""
        return self.module(*args, **kwargs)

    def backward(self, micro_batch, slopes) -> dict:
        """Add the gradients of the weights; {number: slope} of what came in.

        `slopes` are those of the outputs, none of a loss.
        """
        root, given, edges, came = self._live(micro_batch)
        del self.kept[micro_batch]
        given += slopes
        if root is not None:
            torch.autograd.backward(root)
        return {number: came.get(number) for number in edges}

    def backward_input(self, micro_batch, slopes) -> dict:
        """The first half: {number: slope} of what came in."""
        root, given, edges, _ = self._live(micro_batch)
        given += slopes
        split = self.split[micro_batch] = SplitBackward(root, [*edges.values()])
        return dict(zip(edges, split.input_gradients()))

    def backward_weight(self, micro_batch):
        """The second half: add the gradients of the weights."""
        self.split.pop(micro_batch).accumulate()
        del self.kept[micro_batch]

    def _live(self, micro_batch) -> Kept:
        kept = self.kept[micro_batch]
        if callable(kept):
            kept = self.kept[micro_batch] = kept()
        return kept

    def _again(self, state, buffers, parcels, finish) -> Kept:
        """The forward a second time."""
        devices = [index for index, _ in state[1:]]
        with torch.random.fork_rng(devices):
            torch.set_rng_state(state[0])
            for index, cuda in state[1:]:
                torch.cuda.set_rng_state(cuda, index)
            return _run(lambda args, kwargs: functional_call(self.module, buffers, args, kwargs),
                        parcels, finish)[1]  # fmt: skip


def _run(call, parcels, finish) -> tuple:
    """What `call(args, kwargs)` gives for the parcels, and what a backward needs."""
    tensors = [x for parcel in parcels.values() for x in parcel.tensors]
    wanted = [each for parcel in parcels.values() for each in parcel.differentiable]
    edges, slopes, given = {}, {}, []
    for number, x in enumerate(tensors):
        if wanted[number] and torch.is_grad_enabled():
            anchor = torch.zeros(0, device="cpu", requires_grad=True)
            tensors[number] = Arrived.apply(anchor, [x], slopes, number)
            edges[number] = get_gradient_edge(tensors[number])
    out = call(*_arguments(parcels, iter(tensors)))
    outputs = finish(out)
    root = outputs if isinstance(outputs, torch.Tensor) else None
    if root is None and (outputs := [x for x in outputs if x.requires_grad]):
        root = Departed.apply(given, *outputs)
    if root is not None and not root.requires_grad:
        root = None
    return out, Kept(root, given, edges, slopes)


def _arguments(parcels, tensors) -> tuple:
    """What a module is called with: a tuple as several arguments, the batch as it was given."""
    args, kwargs = [], {}
    for source, parcel in parcels.items():
        value = unpack(parcel.text, tensors)
        if source == INPUT:
            value, kwargs = value
        args += value if isinstance(value, tuple) else [value]
    return tuple(args), kwargs


def _random_state() -> list:
    """Of the CPU, and of the GPU that is in use, with its number."""
    state = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state.append((torch.cuda.current_device(), torch.cuda.get_rng_state()))
    return state
