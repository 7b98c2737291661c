"""Which news of a stream are asked for, and that its rank sleeps without the lock."""

import socket
import threading
from types import SimpleNamespace

import pytest

from course.worlds.sockets.polling import READ, WRITE, SocketPoller, interest
from course.worlds.sockets.stream import Stream


@pytest.fixture
def ends():
    pair = socket.socketpair()
    with pair[0], pair[1]:
        yield pair


@pytest.fixture
def lock():
    held = threading.Lock()
    with held:
        yield held


def stream(**state):
    usual = {"incoming": None, "lost": False, "outbox": []}
    return SimpleNamespace(**usual | state)


WITHOUT_A_PLACE, WITH_ONE = SimpleNamespace(buffer=None), SimpleNamespace(buffer=b"")


@pytest.mark.parametrize("state, news", [
    ({}, READ),
    ({"incoming": WITH_ONE}, READ),
    ({"incoming": WITHOUT_A_PLACE}, 0),  # else the kernel would wake its rank again and again
    ({"incoming": WITHOUT_A_PLACE, "outbox": ["frame"]}, WRITE),
    ({"outbox": ["frame"]}, READ | WRITE),
    ({"lost": True}, 0),
    ({"lost": True, "incoming": WITH_ONE}, 0),
])  # fmt: skip
def test_only_news_that_can_be_acted_upon_are_asked_for(state, news):
    assert interest(stream(**state)) == news


def polled(poller, lock):
    return [(stream.peer, mask) for stream, mask in poller.poll(0, lock)]


def test_a_stream_that_has_something_is_told(ends, lock):
    poller = SocketPoller()
    poller.update(Stream(7, ends[0]))
    assert polled(poller, lock) == []
    ends[1].sendall(b"?")
    assert polled(poller, lock) == [(7, READ)]


def test_what_is_asked_for_follows_the_stream(ends, lock):
    """From reading to both, to writing alone, to nothing, and back."""
    poller, ours = SocketPoller(), Stream(7, ends[0])
    ends[1].sendall(b"?")
    steps = [({}, [(7, READ)]), ({"outbox": ["frame"]}, [(7, READ | WRITE)]),
             ({"incoming": WITHOUT_A_PLACE}, [(7, WRITE)]), ({"outbox": []}, []),
             ({"incoming": None}, [(7, READ)]), ({"lost": True}, [])]  # fmt: skip
    for change, told in steps:
        vars(ours).update(change)
        poller.update(ours)
        assert polled(poller, lock) == told, change


def test_the_kernel_is_not_told_what_it_knows(ends):
    """An update comes with every message: it must not cost a system call each."""
    poller, ours, calls = SocketPoller(), Stream(7, ends[0]), []
    poller.update(ours)
    for name in ("register", "modify", "unregister"):
        setattr(poller.selector, name, lambda *_: calls.append(1))
    poller.update(ours)
    assert calls == []
    ours.outbox.append("frame")
    poller.update(ours)
    poller.update(ours)
    assert calls == [1]


def test_its_rank_sleeps_without_the_lock_and_wakes_with_it(lock):
    poller, seen = SocketPoller(), []
    poller.selector = SimpleNamespace(select=lambda timeout_s: seen.append(lock.locked()) or [])
    poller.poll(0.2, lock)
    assert seen == [False] and lock.locked()


def test_an_interrupt_amid_the_sleep_leaves_the_lock_as_it_was(lock):
    def interrupted(timeout_s):
        raise KeyboardInterrupt

    poller = SocketPoller()
    poller.selector = SimpleNamespace(select=interrupted)
    with pytest.raises(KeyboardInterrupt):
        poller.poll(0.2, lock)
    assert lock.locked()


def test_it_waits_as_long_as_it_is_told(lock):
    poller, told = SocketPoller(), []
    poller.selector = SimpleNamespace(select=lambda timeout_s: told.append(timeout_s) or [])
    poller.poll(0.25, lock)
    assert told == [0.25]
