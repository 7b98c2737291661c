"""A bound in seconds of real time: the one way to end a rank that neither waits nor returns."""

import contextlib
import functools
import signal
import threading
import time


class LimitReached(BaseException):
    """`limit_s` seconds are over."""

    def __init__(self, limit_s):
        super().__init__(f"{limit_s:g} s are over")
        self.limit_s = limit_s


@contextlib.contextmanager
def limited(limit_s):
    """Raise LimitReached inside after `limit_s` seconds (None: never).

    Raises ValueError outside of the main thread, the only one that signals reach.
    """
    if limit_s is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("on an imagined cluster only the main thread can have a limit")
    start, expire = time.monotonic(), functools.partial(_raise, limit_s)
    handler = signal.signal(signal.SIGALRM, expire)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:  # a timer of the caller
            left_s = max(left_s - (time.monotonic() - start), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)


def _raise(limit_s, *_):
    raise LimitReached(limit_s)
