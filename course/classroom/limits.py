"""Limits of a call: `within(seconds, call)` ends one that takes too long; `Bounded` prints less."""

import ctypes
import os
import signal
import threading
import time
from contextlib import contextmanager

AGAIN_S = 1.0  # between two interrupts, should the call go on after the first
TRIES = 5  # to interrupt a thread, which goes on alone after that
LONGEST_OUTPUT = 100_000  # characters: enough to see what an endless loop prints


class TimeIsUp(KeyboardInterrupt):
    """The limit has passed.  A run on ranks, real or simulated, ends as at any other interrupt."""


class Interrupted(KeyboardInterrupt):
    """Somebody has pressed the button; other KeyboardInterrupts are of the call's own making."""


class Bounded:
    """A text stream that passes on the first `longest` characters, and then says that it stops."""

    def __init__(self, stream, longest=LONGEST_OUTPUT):
        self.stream, self.left = stream, longest

    def write(self, text: str) -> int:
        if self.left > 0:
            self.stream.write(text[: self.left])
            if len(text) > self.left:
                self.stream.write("\n... what is printed from here on is not shown\n")
            self.left -= len(text)
        return len(text)

    def __getattr__(self, name):
        return getattr(self.stream, name)


def within(seconds: float, call):
    """What `call()` returns.  Raises what it raises; TimeIsUp if it takes more than `seconds`.

    In the main thread a signal interrupts the call.  Elsewhere it has a thread of its own, so that
    this function returns though the call may not.  If the call forks, its child ends here.
    """
    process = os.getpid()
    try:
        if threading.current_thread() is not threading.main_thread():
            return _in_a_thread(seconds, call)
        with _alarm(seconds), _interrupts_named():
            return call()
    finally:
        if os.getpid() != process:
            os._exit(0)


@contextmanager
def _alarm(seconds):
    """Raise TimeIsUp in the main thread after `seconds`; the caller's own alarm goes on after."""

    def ring(number, frame):
        raise TimeIsUp(f"it ran for {seconds:g} s")

    handler, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, period = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(
                signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), period
            )


@contextmanager
def _interrupts_named():
    """An interrupt from outside is raised as Interrupted, where it would be a KeyboardInterrupt."""

    def interrupt(number, frame):
        raise Interrupted

    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, handler)


def _in_a_thread(seconds, call):
    outcome = []

    def run():
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    for _ in range(TRIES):
        if thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(TimeIsUp)
            )
            thread.join(AGAIN_S)
    value, error = outcome[0] if outcome else (None, TimeIsUp(f"it ran for {seconds:g} s"))
    if error is not None:
        raise error
    return value
