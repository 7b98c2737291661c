"""Many ranks in one process: each pauses and goes on where it was, and keeps its state of torch.

A rank is a greenlet: to switch to another takes half a microsecond, a thread a hundred times
as long.  But one thread has one grad mode, one stack of modes, one dtype by default: a rank
that pauses takes its own along.  And a switch in the middle of a backward pass would mix the queues
that torch keeps for each thread, so a backward pass has a thread to itself; the rest waits for it.
"""

import contextlib
import threading
from queue import SimpleQueue

import torch
from greenlet import greenlet
from torch import get_default_dtype, is_grad_enabled
from torch._C import _is_fwd_grad_enabled as is_fwd_grad_enabled

_C = torch._C
FUNCTION_MODES = (
    _C._len_torch_function_stack,
    _C._pop_torch_function_stack,
    _C._push_on_torch_function_stack,
    0,
)
DISPATCH_MODES = (
    _C._len_torch_dispatch_stack,
    lambda: _C._pop_torch_dispatch_stack(None),
    _C._push_on_torch_dispatch_stack,
    1,  # the counter stays: it is everyone's
)


class Fibre:
    """One rank's course of events."""

    def __init__(self, body):
        self.body, self.greenlet, self.aside = body, None, None

    def resume(self):
        """Run this rank until it pauses or ends; the first time, in the thread that it is of."""
        if self.greenlet is None:
            self.greenlet = greenlet(self.body)
        self.greenlet.switch()

    def pause(self):
        """Let others run, until this rank is resumed."""
        if self.aside:
            self.aside.pause()
        else:
            keeping_state(self.greenlet.parent.switch)

    def end(self):
        """Unwind a rank that will not be resumed any more."""
        if self.greenlet:
            self.greenlet.throw()

    def backward(self, call, counter):
        """Run `call`, a backward pass, in a thread of its own."""
        if self.aside:  # one within another
            return call()
        self.aside = Aside(call, counter)
        self.aside.thread.start()
        try:
            while self.aside.runs():
                self.aside.answer(keeping_state, self.greenlet.parent.switch)
            return self.aside.value()
        finally:
            self.aside = None


class Aside:
    """A call in another thread, which runs while this one waits, and the other way round."""

    def __init__(self, call, counter):
        self.said, self.heard, self.result = SimpleQueue(), SimpleQueue(), None
        self.thread = threading.Thread(target=self._run, args=(call, counter), daemon=True)

    def _run(self, call, counter):
        try:
            with counter:
                self.said.put((call(), None))
        except BaseException as error:
            self.said.put((None, error))

    def runs(self) -> bool:
        """Wait for the other thread: whether it has paused, and not ended."""
        self.result = self.said.get()
        return self.result is None

    def answer(self, wait, *args):
        """Let the other thread go on after `wait(*args)`; what that raises is raised there."""
        try:
            wait(*args)
        except BaseException as error:
            self.heard.put(error)
        else:
            self.heard.put(None)

    def pause(self):
        """Called in the other thread: let this one run."""
        self.said.put(None)
        error = self.heard.get()
        if error is not None:
            raise error

    def value(self):
        self.thread.join()
        value, error = self.result
        if error is not None:
            raise error
        return value


def keeping_state(call):
    """Do `call`, and put back this thread's state of torch as it was before."""
    grad, forward_grad = is_grad_enabled(), is_fwd_grad_enabled()
    dtype = get_default_dtype()
    try:
        if _unusual():
            with _set_aside():
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


def plain_state():
    """What a rank begins with."""
    _C._set_grad_enabled(True)
    _C._set_fwd_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


def _unusual() -> bool:
    return (_C._len_torch_function_stack() or _C._len_torch_dispatch_stack() > 1
            or torch.is_inference_mode_enabled() or _C._is_any_autocast_enabled())  # fmt: skip


@contextlib.contextmanager
def _set_aside():
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
