"""Work counted: the floating-point operations and bytes of every operation that a rank does.

Operations are counted with torch's own formulas; bytes are what an operation reads and writes if
it touches each of its tensors once.  Views and new memory that is not filled cost nothing.
"""

import os
import types
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from course.worlds.simulator.shape_memo import ShapeMemo

FREE = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view",
        "set_", "resize_", "lift_fresh", "is_same_size", "record_stream")  # fmt: skip
# The first tensor is overwritten, or says no more than a shape.
UNREAD = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
          "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like", "rand_like",
          "randn_like", "randint_like")  # fmt: skip

UNASKED = ("copy_", "uniform_")  # in place, and torch asks nothing on the meta device

SIMULATOR = os.path.dirname(__file__) + os.sep


def roofline(operation: str, flops: float, nbytes: float, device) -> float:
    """Seconds of an operation that is held up by arithmetic or by memory, whichever is slower.

    Source: Williams, Waterman & Patterson 2009.
    """
    return max(flops / device.flops_per_s, nbytes / device.memory_bytes_per_s)


class OpKind(NamedTuple):
    """What is known of an operation before it runs."""

    name: str
    free: bool
    random: bool
    formula: object
    first_read: int  # the first tensor that is read
    skip_on_meta: bool  # into what is there, element by element: nothing to do on the meta device
    makes_new: bool  # its results share no memory with what it is given

    def work(self, args, kwargs, out):
        """The flops and bytes of it; None if it is free."""
        if self.free:
            return None
        flops = self.formula(*args, **kwargs, out_val=out) if self.formula else 0
        return flops, _nbytes((*args[self.first_read :], out))


class OpCounter(TorchDispatchMode):
    """While it is entered, every torch operation is charged to `simulation`; before a random one,
    the running rank's generator is put in place."""

    @classmethod
    def _should_skip_dynamo(cls):
        """No: nothing here is compiled, and to be ready for it takes as long as all the rest."""
        return False

    def __init__(self, simulation):
        super().__init__()
        self.simulation, self.kinds, self.memo = simulation, {}, ShapeMemo()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kind = self.kinds.get(id(func))  # torch keeps its operations
        if kind is None:
            kind = self.kinds[id(func)] = _kind(func)
        kwargs = kwargs or {}
        if kind.makes_new:
            out, work = self.memo.result(func, args, kwargs, kind.work)
        elif kind.skip_on_meta and _all_alike(changed := kwargs.get("out", args[0]), args):
            out, work = changed, kind.work(args, kwargs, changed)
        else:
            if kind.random:
                self.simulation.random.switch()
            out = func(*args, **kwargs)
            work = kind.work(args, kwargs, out)
        if work:
            self.simulation.charge(kind.name, *work)
        return out


def _kind(func) -> OpKind:
    name = func.overloadpacket.__name__
    tags = func.tags
    in_place = torch.Tag.inplace in tags if hasattr(torch.Tag, "inplace") else name.endswith("_")
    in_place |= any(each.is_out and each.name == "out" for each in func._schema.arguments)
    return OpKind(
        name=name,
        free=func.is_view or torch.Tag.inplace_view in tags or name in FREE,
        random=torch.Tag.nondeterministic_seeded in tags,
        formula=flop_registry.get(_not_in_place(func.overloadpacket)),
        first_read=int(name in UNREAD),
        skip_on_meta=in_place and (torch.Tag.pointwise in tags or name in UNASKED),
        makes_new=_makes_new(func._schema) and torch.Tag.nondeterministic_seeded not in tags,
    )


def _makes_new(schema) -> bool:
    return not any(each.alias_info for each in (*schema.arguments, *schema.returns))


def _not_in_place(packet):
    """The operation that torch has a formula for: `baddbmm` for `baddbmm_`."""
    name = packet.__name__
    return getattr(torch.ops.aten, name[:-1], packet) if name.endswith("_") else packet


def _all_alike(changed, args) -> bool:
    """Whether all tensors are on the meta device and have the shape of the one that is changed, of
    floats; none of them is complex."""
    if not (changed.is_meta and changed.is_floating_point()):
        return False
    for x in args:
        if isinstance(x, torch.Tensor) and x is not changed and not _fits(x, changed):
            return False
    return True


def _fits(x, changed) -> bool:
    return x.is_meta and x.shape == changed.shape and not x.is_complex()


def _nbytes(things) -> int:
    """Bytes of all tensors among `things`."""
    total = 0
    for thing in things:
        if isinstance(thing, torch.Tensor):
            dense = thing.layout is torch.strided  # only such tell it at once
            total += thing.nbytes if dense else thing.numel() * thing.element_size()
        elif isinstance(thing, list | tuple):
            total += _nbytes(thing)
    return total


def user_traceback(error):
    """`error` with a traceback that shows where the program was, and nothing of what ran it."""
    frames, step = [], error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename != __file__:
        if not step.tb_frame.f_code.co_filename.startswith(SIMULATOR):
            frames.append(step)
        step = step.tb_next
    trace = None
    for frame in reversed(frames):
        trace = types.TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return error.with_traceback(trace)
