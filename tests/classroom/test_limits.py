"""A call ends at its limit, whatever it does, and leaves the caller's signals as they were."""

import contextlib
import io
import os
import signal
import threading
import time

import pytest

from course.classroom import limits
from course.classroom.limits import Bounded, Interrupted, TimeIsUp, suspended, within


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(limits, "AGAIN_S", 0.05)


def spin():
    while True:
        pass


def sleep():
    time.sleep(1e6)


def wait_for_nobody():
    threading.Event().wait()


def swallow():
    for _ in range(3):
        with contextlib.suppress(BaseException):
            spin()
    spin()


def elsewhere(call):
    """What `call()` raises in a thread that is not the main one, or returns."""
    said = []

    def run():
        try:
            said.append(call())
        except BaseException as error:
            said.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said[0]


@pytest.mark.parametrize("call", [spin, sleep, wait_for_nobody, swallow])
def test_an_endless_call_is_interrupted(call):
    with pytest.raises(TimeIsUp, match=r"^it was stopped after 0.1 s$") as stopped:
        within(0.1, call)
    assert any(entry.name == call.__name__ for entry in stopped.traceback)


@pytest.mark.parametrize("call", [spin, wait_for_nobody, swallow])
def test_an_endless_call_ends_in_any_thread(call):
    assert isinstance(elsewhere(lambda: within(0.1, call)), TimeIsUp)


def test_what_a_call_returns_and_raises_comes_back():
    def leave():
        raise SystemExit(3)

    for here in (lambda call: call(), elsewhere):
        assert here(lambda: within(10, lambda: 7)) == 7
    assert isinstance(elsewhere(lambda: within(10, leave)), SystemExit)
    with pytest.raises(SystemExit):
        within(10, leave)


def test_an_interrupt_from_outside_is_told_from_one_of_the_calls_own():
    def own():
        raise KeyboardInterrupt("own")

    def from_outside():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:  # as a run does, to say where its ranks were
            raise KeyboardInterrupt("rank 0 was here") from None

    with pytest.raises(KeyboardInterrupt, match="own") as stopped:
        within(10, own)
    assert stopped.type is KeyboardInterrupt
    with pytest.raises(Interrupted, match="rank 0 was here"):
        within(10, from_outside)


def test_the_callers_signals_and_alarm_are_as_before():
    rung = []
    handlers = (
        signal.signal(signal.SIGALRM, lambda *_: rung.append(1)),
        signal.getsignal(signal.SIGINT),
    )
    left, period = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        within(10, lambda: None)
        with pytest.raises(TimeIsUp):
            within(0.1, spin)
        assert 900 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        assert signal.getsignal(signal.SIGINT) is handlers[1]
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, period)
        signal.signal(signal.SIGALRM, handlers[0])


def test_what_has_a_limit_of_its_own_does_not_count():
    def left():
        return signal.getitimer(signal.ITIMER_REAL)[0]

    def patient():
        with suspended():
            within_it = left()
        return within_it, left()

    during, after = within(1000, patient)
    assert during == 0 and 900 < after <= 1000


def test_the_child_of_a_call_that_forks_ends_with_the_call(tmp_path):
    began = os.getpid()

    def fork():
        return os.fork()

    child = within(10, fork)
    (tmp_path / str(os.getpid())).touch()
    assert os.getpid() == began
    assert os.waitpid(child, 0)[1] == 0
    assert [file.name for file in tmp_path.iterdir()] == [str(began)]


def test_output_is_bounded():
    stream = io.StringIO()
    bounded = Bounded(stream, 10)
    for _ in range(1000):
        assert bounded.write("abc") == 3
    assert stream.getvalue() == "abcabcabca\n... what is printed from here on is not shown\n"
    assert not bounded.closed
