"""Limits of a call: `within(seconds, call)` ends one that takes too long; `Bounded` prints less."""

import os
import signal
import threading
import time
from contextlib import contextmanager
from ctypes import c_ulong, py_object, pythonapi

AGAIN_S = 2.0  # between two interrupts, should the call go on after the first
TRIES = 5  # to interrupt a thread, which goes on alone after that
LONGEST_OUTPUT = 100_000  # characters: enough to see what an endless loop prints


class TimeIsUp(KeyboardInterrupt):
    """The limit has passed, and the call was interrupted."""


class Interrupted(KeyboardInterrupt):
    """Somebody interrupted the call; any other KeyboardInterrupt is of its own making."""


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

    def close(self):
        """Nothing: the stream is not the call's own."""

    def __getattr__(self, name):
        return getattr(self.stream, name)


def within(seconds: float, call):
    """What `call()` returns.  Raises what it raises; TimeIsUp if it takes more than `seconds`, and
    Interrupted if somebody interrupts it.

    In the main thread a signal ends the call.  Elsewhere it has a thread of its own, so that this
    function returns though the call may not.  If the call forks, its child ends here.
    """
    process = os.getpid()
    try:
        if threading.current_thread() is threading.main_thread():
            return _in_the_main_thread(seconds, call)
        return _in_a_thread(seconds, call)
    finally:
        if os.getpid() != process:
            os._exit(0)


def _in_the_main_thread(seconds, call):
    with _raising(signal.SIGALRM) as rung, _raising(signal.SIGINT) as pressed, _alarm(seconds):
        try:
            return call()
        except BaseException as error:  # a KeyboardInterrupt may have become another one on its way
            if pressed:
                raise Interrupted(*error.args) from None
            if not rung:
                raise
            raise _time_is_up(seconds).with_traceback(error.__traceback__) from None


@contextmanager
def _raising(number):
    """A signal raises KeyboardInterrupt; yields a list, empty until it has done so."""
    heard = []

    def interrupt(number, frame):
        heard.append(number)
        raise KeyboardInterrupt

    handler = signal.signal(number, interrupt)
    try:
        yield heard
    finally:
        signal.signal(number, handler)


@contextmanager
def _alarm(seconds):
    """SIGALRM after `seconds`, and again; an alarm that the caller has set goes on afterwards."""
    began = time.monotonic()
    left, period = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        left = left and max(left - (time.monotonic() - began), AGAIN_S)
        signal.setitimer(signal.ITIMER_REAL, left, period)


@contextmanager
def suspended():
    """What is done here has a limit of its own: it does not count for that of `within`."""
    left, period = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, period)


def _time_is_up(seconds):
    return TimeIsUp(f"it was stopped after {seconds:g} s")


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
            pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread.ident), py_object(TimeIsUp))
            thread.join(AGAIN_S)
    value, error = outcome[0] if outcome else (None, _time_is_up(seconds))
    if error is not None:
        raise error
    return value
