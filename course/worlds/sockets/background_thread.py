"""Calls that run in the background of a rank's own work: one after another, in a thread."""

import sys
import threading
from queue import SimpleQueue

from course.comm.task import Task

SWITCH_S = 2e-4  # a thread that has news waits so long for one that computes in Python


class SwitchInterval:
    """How long a thread may keep the interpreter: SWITCH_S while calls run in the background, then
    what it was before."""

    def __init__(self):
        self.lock, self.running, self.before = threading.Lock(), 0, 0.0

    def __enter__(self):
        with self.lock:
            if not self.running:
                self.before = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_S)
            self.running += 1

    def __exit__(self, *_):
        with self.lock:
            self.running -= 1
            if not self.running:
                sys.setswitchinterval(self.before)


class BackgroundThread:
    """A thread of a rank's `transport`, which carries its messages like the rank's own."""

    def __init__(self, transport, interval: SwitchInterval):
        self.transport, self.interval = transport, interval
        self.queue, self.unjoined = SimpleQueue(), []
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def submit(self, call) -> Task:
        """Do `call()` once all that was submitted before is finished."""
        task = Task(call)
        self.unjoined.append(task)
        self.queue.put(task)
        return task

    def join(self, task):
        """Block until `task` is finished."""
        task.done.wait()
        if task in self.unjoined:
            self.unjoined.remove(task)

    def finish(self):
        """Wait for what nobody has waited for, and raise what went wrong in it; then the thread
        ends."""
        for task in list(self.unjoined):
            self.join(task)
            if task.error:
                raise task.error
        self.queue.put(None)
        self.thread.join()

    def _work(self):
        while (task := self.queue.get()) is not None:
            with self.interval:
                task.run()
            task.done.set()
