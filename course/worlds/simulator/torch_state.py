"""What torch keeps for each thread, kept for each rank instead: ranks share one thread.

One thread has one grad mode, one stack of modes, one dtype by default.  All private names of torch
that the imagined cluster needs are here: torch has no public way to read and set the grad mode of
forward derivatives, to take modes off their stacks, to leave its dispatcher for one copy, or to
run a backward pass of its own making.
"""

import contextlib

import torch
from torch import _C, get_default_dtype, is_grad_enabled, is_inference_mode_enabled
from torch._C import _is_any_autocast_enabled as is_autocast_enabled
from torch._C import _is_fwd_grad_enabled as is_fwd_grad_enabled
from torch._C import _len_torch_dispatch_stack as dispatch_modes
from torch._C import _len_torch_function_stack as function_modes
from torch._C._autograd import _top_saved_tensors_default_hooks as top_hooks
from torch.autograd import Variable

FUNCTION_MODES = (function_modes, _C._pop_torch_function_stack,
                  _C._push_on_torch_function_stack, 0)  # fmt: skip
DISPATCH_MODES = (dispatch_modes, lambda: _C._pop_torch_dispatch_stack(None),
                  _C._push_on_torch_dispatch_stack, 1)  # fmt: skip  # the counter stays

uncounted = _C._DisableTorchDispatch  # what the cluster copies is no rank's work


def keep_state(call):
    """Do `call()`, and put back this thread's state of torch as it was before."""
    grad, forward_grad = is_grad_enabled(), is_fwd_grad_enabled()
    dtype = get_default_dtype()
    try:
        if (dispatch_modes() > 1 or function_modes() or is_inference_mode_enabled()
                or is_autocast_enabled() or top_hooks(False) is not None):  # fmt: skip
            with _without_modes():
                call()
        else:
            call()
    finally:
        if is_grad_enabled() is not grad:
            _C._set_grad_enabled(grad)
        if is_fwd_grad_enabled() is not forward_grad:
            _C._set_fwd_grad_enabled(forward_grad)
        if get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)


def set_initial_state():
    """What a rank begins with."""
    _C._set_grad_enabled(True)
    _C._set_fwd_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _without_modes():
    """Without the modes that were entered with `with`, for a while."""
    stacks, hooks = [], []
    for length, pop, _, base in (FUNCTION_MODES, DISPATCH_MODES):
        stacks.append([pop() for _ in range(length() - base)])
    while (pair := top_hooks(False)) is not None:  # pack and unpack, such as a checkpoint's
        hooks.append(pair)
        _C._autograd._pop_saved_tensors_default_hooks()
    try:
        with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        for pair in reversed(hooks):
            _C._autograd._push_saved_tensors_default_hooks(*pair)
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
