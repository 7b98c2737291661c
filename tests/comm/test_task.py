"""A call that was submitted: its value or its error, in the grad mode of whoever submitted it."""

import threading

import pytest
import torch

from course.comm.task import Task


def test_what_a_call_returns_is_its_value():
    task = Task(lambda: 7)
    assert task.value is None and task.error is None
    task.run()
    assert (task.value, task.error) == (7, None)


@pytest.mark.parametrize("error", [LookupError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_call_raises_is_kept_for_who_waits(error):
    def fail():
        raise error

    task = Task(fail)
    task.run()
    assert task.error is error and task.value is None


def test_whoever_runs_it_says_when_it_is_done():
    task = Task(lambda: task.done.is_set())
    task.run()
    assert task.value is False and not task.done.is_set()


@pytest.mark.parametrize("grad", [True, False])
def test_a_call_has_the_grad_mode_in_which_it_was_submitted(grad):
    """Modes belong to threads: the one that runs it has its own, and keeps it."""
    with torch.set_grad_enabled(grad):
        task = Task(torch.is_grad_enabled)
    after = []

    def other_thread():
        with torch.set_grad_enabled(not grad):
            task.run()
            after.append(torch.is_grad_enabled())

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert task.value is grad and after == [not grad]
