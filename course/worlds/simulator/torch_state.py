"""What torch keeps for each thread, kept for each rank instead: ranks share one thread.

One thread has one grad mode, one stack of modes, one dtype by default.  All private names of torch
that the imagined cluster needs are here: torch has no public way to read and set the grad mode of
forward derivatives, to take modes off their stacks, to leave its dispatcher for one copy, or to
run a backward pass of its own making.
"""

import contextlib

import torch
from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled
from torch._C import (
    _is_any_autocast_enabled,
    _is_fwd_grad_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
    _pop_torch_dispatch_stack,
    _pop_torch_function_stack,
    _push_on_torch_dispatch_stack,
    _push_on_torch_function_stack,
    _set_fwd_grad_enabled,
    _set_grad_enabled,
)
from torch.autograd import Variable

FUNCTION_MODES = (
    _len_torch_function_stack, _pop_torch_function_stack, _push_on_torch_function_stack, 0
)  # fmt: skip
DISPATCH_MODES = (
    _len_torch_dispatch_stack, lambda: _pop_torch_dispatch_stack(None),
    _push_on_torch_dispatch_stack, 1,  # the counter of operations stays: it is everyone's
)  # fmt: skip

uncounted = torch._C._DisableTorchDispatch  # what the cluster copies is no rank's work


def keep_state(call):
    """Do `call()`, and put back this thread's state of torch as it was before."""
    grad, forward_grad = is_grad_enabled(), _is_fwd_grad_enabled()
    dtype = get_default_dtype()
    try:
        if (_len_torch_dispatch_stack() > 1 or _len_torch_function_stack()
                or is_inference_mode_enabled() or _is_any_autocast_enabled()):  # fmt: skip
            with _without_modes():
                call()
        else:
            call()
    finally:
        if is_grad_enabled() is not grad:
            _set_grad_enabled(grad)
        if _is_fwd_grad_enabled() is not forward_grad:
            _set_fwd_grad_enabled(forward_grad)
        if get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)


def set_initial_state():
    """What a rank begins with."""
    _set_grad_enabled(True)
    _set_fwd_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _without_modes():
    """Without the modes that were entered with `with`, for a while."""
    stacks = []
    for length, pop, _, base in (FUNCTION_MODES, DISPATCH_MODES):
        stacks.append([pop() for _ in range(length() - base)])
    try:
        with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        for (_, _, push, _), stack in zip((FUNCTION_MODES, DISPATCH_MODES), stacks):
            for mode in reversed(stack):
                push(mode)


class BackwardEngine:
    """torch's engine of backward passes, where each pass of a rank has a thread to itself.

    While it is entered, it stands for torch's own.
    """

    def __init__(self, simulation, counter):
        self._simulation, self._counter = simulation, counter
        self._engine = Variable._execution_engine

    def __enter__(self):
        Variable._execution_engine = self

    def __exit__(self, *_):
        Variable._execution_engine = self._engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run_backward(self, *args, **kwargs):
        context, run = self._simulation.running, self._engine.run_backward
        if context is None:
            return run(*args, **kwargs)
        return context.coroutine.backward(lambda: run(*args, **kwargs), self._counter)
