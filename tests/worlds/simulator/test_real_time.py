"""A bound in real seconds ends what runs, and leaves the caller's timers as they were."""

import signal
import threading
import time

import pytest

from course.worlds.simulator.real_time import LimitReached, limited


def test_what_is_over_in_time_is_not_disturbed():
    handler = signal.getsignal(signal.SIGALRM)
    with limited(60):
        pass
    with limited(None):
        assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getsignal(signal.SIGALRM) is handler


def test_an_endless_loop_ends():
    with pytest.raises(LimitReached), limited(0.05):
        while True:
            pass


def test_a_timer_of_the_caller_goes_on():
    before = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with pytest.raises(LimitReached), limited(0.05):
            time.sleep(60)
        left_s, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 900 < left_s < 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_only_the_main_thread_can_be_limited():
    told = []

    def limit():
        try:
            with limited(1):
                pass
        except ValueError as error:
            told.append(str(error))

    thread = threading.Thread(target=limit)
    thread.start()
    thread.join()
    assert told == ["on an imagined cluster only the main thread can have a limit"]
