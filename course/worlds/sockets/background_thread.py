"""A second course of events of a rank: what is begun runs in a thread of its own, one piece of work
after another, while the rank goes on with its own."""

import sys
import threading
from queue import SimpleQueue

from course.comm.task import Task

SWITCH_S = 2e-4  # a thread that has news waits so long for one that computes in Python


class Companion:
    """A wire as it looks from beside: the same messages, sent and awaited in another thread."""

    def __init__(self, wire, window=None):
        self._wire, self._queue, self._unheard, self._window = wire, SimpleQueue(), [], window
        sys.setswitchinterval(SWITCH_S)
        threading.Thread(target=self._work, daemon=True).start()

    def __getattr__(self, name):
        return getattr(self._wire, name)

    def node_memory(self):
        """The memory of its node that is for what runs beside, if there is such a thing."""
        return self._window

    def background(self, group):
        """Another thread, beside this one; the memory of the node is taken."""
        return self._wire.background(None)

    def submit(self, call) -> Task:
        """Do `call()` once all that was begun before is over."""
        work = Task(call)
        self._unheard.append(work)
        self._queue.put(work)
        return work

    def join(self, work):
        """Block until `work` is over; its end has been heard of then."""
        work.done.wait()
        if work in self._unheard:
            self._unheard.remove(work)

    def finish(self):
        """Wait for what nobody has waited for, and raise what went wrong in it."""
        for work in list(self._unheard):
            self.join(work)
            if work.error:
                raise work.error

    def _work(self):
        while True:
            self._queue.get().run()
