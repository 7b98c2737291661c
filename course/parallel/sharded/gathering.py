"""When the weights of stage 3 are whole: each unit's before its forward and its backward, and the
next one's on their way meanwhile.

Which is the next was recorded in the first step: the order in which forward and backward entered
units.  A unit is freed after its forward, unless it is the next to be entered; in backward, when
that enters a unit outside of it (autograd takes operations strictly in reverse, so it is through
with the first one), or is over.
"""

import functools
import weakref
import zlib

import torch
from torch.autograd import Variable

from course.collectives import all_reduce
from course.parallel.data.samples import tensors_in

FORWARD, BACKWARD = "forward", "backward"


class Gathering:
    """Hooks of `units` that gather and free them.

    order [(phase, unit), ...] of the first step; position: how far this step has come in it.
    digest: a number of all units entered, by which ranks compare their ways after each backward.
    held: nothing is freed, since this backward is to be `derived` once more, or an earlier one was.
    """

    def __init__(self, comm, units):
        self.comm, self.units = comm.split(0), [unit for unit in units if unit.flats]
        self.order, self.recording, self.position, self.digest = [], True, 0, 0
        self.held, self.derived, self._end = False, False, None
        for unit in self.units:
            before, after = (functools.partial(hook, unit) for hook in (self._before, self._after))
            unit.module.register_forward_pre_hook(before, prepend=True)
            unit.module.register_forward_hook(after, always_call=True)
            unit.free()

    def drop(self):
        """Whatever is whole and not in use is freed: the weights have changed."""
        self.held = False
        for unit in self.units:
            if unit.idle:
                unit.free()

    def _before(self, unit, module, args):
        """The forward of `unit` begins, perhaps within a backward that computes it once more."""
        if self._end is not None and self._end() is None:  # a backward that broke off
            self._close(lambda unit: True)
        unit.depth += 1
        if _in_backward():
            self._enter_backward(unit)
        elif unit.depth == 1:
            self._enter(FORWARD, unit)

    def _after(self, unit, module, args, out):
        unit.depth -= 1
        for tensor in tensors_in(out):
            if tensor.grad_fn is not None:
                tensor.register_hook(functools.partial(self._backward, unit))
        if unit.idle and not self._is_next(unit):
            self._free(unit)

    def _backward(self, unit, gradient):
        """A backward comes by an output of `unit`."""
        self.derived = torch.is_grad_enabled()
        self.held |= self.derived
        self._enter_backward(unit)

    def _enter_backward(self, unit):
        if self._end is None or self._end() is None:
            end = functools.partial(self._finish)  # kept by autograd alone, as long as it runs
            self._end = weakref.ref(end)
            Variable._execution_engine.queue_callback(end)
        self._close(lambda other: unit.module not in other.within)
        if not unit.open:
            unit.open = True
            self._enter(BACKWARD, unit)

    def _enter(self, phase, unit):
        """Have `unit` whole, and the next one on its way."""
        self.digest = zlib.crc32(f"{phase} {unit.name}".encode(), self.digest)
        unit.begin(self.comm)
        following = self._find(phase, unit)
        if following is not None:
            following.begin(self.comm)
        unit.wait()

    def _find(self, phase, unit):
        """Find the place of this entry in the order: the unit that comes next.  What was expected
        instead, and may be on its way, is freed."""
        if self.recording:
            if torch.is_grad_enabled() or phase == BACKWARD:
                self.order.append((phase, unit))
            return None
        ahead = self.order[self.position :] + self.order[: self.position]
        if (phase, unit) not in ahead:
            return None
        skipped = ahead.index((phase, unit))
        for _, other in ahead[:skipped]:
            if other.idle and other is not unit:
                self._free(other)
        self.position = (self.position + skipped + 1) % len(self.order)
        return self.order[self.position][1] if self.position else None

    def _is_next(self, unit) -> bool:
        """Whether the next step is the backward of the unit whose forward is over, or another of
        its forwards."""
        if self.recording or not self.position or not torch.is_grad_enabled():
            return False
        return self.order[self.position][1] is unit

    def _close(self, which):
        for unit in self.units:
            if unit.open and which(unit):
                unit.open = False
                if not unit.depth:
                    self._free(unit)

    def _free(self, unit):
        if not self.held:
            unit.free()

    def _finish(self):
        """Backward is over: all ranks must have come the same way."""
        self._end = None
        self._close(lambda unit: True)
        if not self.derived:
            self.drop()
        self.recording, digest, self.digest = False, self.digest, 0
        ways = torch.tensor([digest, -digest], device="cpu")
        all_reduce(self.comm, ways, "max", algorithm="recursive_doubling")
        if ways[0] != -ways[1]:
            raise RuntimeError(
                f"rank {self.comm.rank}: ranks have gone through the units of stage 3 in different "
                "orders, so they have waited for each other with other weights: every rank must "
                "call the same layers"
            )


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
