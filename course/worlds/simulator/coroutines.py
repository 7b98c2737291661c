"""Many ranks in one thread: each is a coroutine, which pauses and goes on where it was.

A coroutine is a greenlet: to switch to another takes half a microsecond, a thread a hundred times
as long.  But a switch in the middle of a backward pass would mix the queues that torch keeps for
each thread, so a backward pass has a thread to itself; the rest waits for it.
"""

import threading
from queue import SimpleQueue

from greenlet import getcurrent, greenlet

from course.worlds.simulator.torch_state import keep_state


class RankCoroutine:
    """`body` as a coroutine of a simulation, which says who is next.

    Its greenlet is made when it begins: by the engine, in the engine's thread.
    """

    def __init__(self, simulation, body):
        self.simulation, self.body = simulation, body
        self.greenlet = self.backward_thread = None

    def resume(self):
        """Called by the engine: begin, or go on after a pause."""
        if self.greenlet is None:
            self.greenlet = greenlet(self.body)
        self.greenlet.switch()

    def pause(self):
        """Let others run, until this coroutine is resumed.

        Raises RuntimeError in a thread that the rank has started itself.
        """
        if self.backward_thread:
            self.backward_thread.pause()
        elif getcurrent() is self.greenlet:
            keep_state(self.simulation.switch)
        else:
            raise RuntimeError(
                "a rank of an imagined cluster waits in the thread of its function only: for calls "
                "beside it there is comm.submit"
            )

    def end(self):
        """Unwind a coroutine that will not be resumed any more."""
        if self.greenlet:
            self.greenlet.throw()

    def backward(self, call, counter):
        """The value of `call`, a backward pass, in a thread of its own."""
        if self.backward_thread:  # one within another
            return call()
        self.backward_thread = thread = BackwardThread(call, counter)
        thread.start()
        try:
            while thread.runs():
                thread.answer(keep_state, self.simulation.switch)
            return thread.value()
        finally:
            self.backward_thread = None


class BackwardThread(threading.Thread):
    """A call in another thread, which runs while this one waits, and the other way round."""

    def __init__(self, call, counter):
        super().__init__(daemon=True)
        self.call, self.counter, self.result = call, counter, None
        self.results, self.replies = SimpleQueue(), SimpleQueue()

    def run(self):
        try:
            with self.counter:
                self.results.put((self.call(), None))
        except BaseException as error:
            self.results.put((None, error))

    def runs(self) -> bool:
        """Wait for the other thread: whether it has paused, and not ended."""
        self.result = self.results.get()
        return self.result is None

    def answer(self, wait, *args):
        """Let the other thread go on after `wait(*args)`; what that raises is raised there."""
        try:
            wait(*args)
        except BaseException as error:
            self.replies.put(error)
        else:
            self.replies.put(None)

    def pause(self):
        """Called in the other thread: let this one run."""
        self.results.put(None)
        error = self.replies.get()
        if error is not None:
            raise error

    def value(self):
        """What the call has returned.  Raises what it has raised."""
        self.join()
        value, error = self.result
        if error is not None:
            raise error
        return value
