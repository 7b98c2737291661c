"""An imagined rank's calls in the background: they run on a clock of their own, one after another,
while the rank goes on with its own work."""

import contextlib
from collections import deque

from greenlet import GreenletExit

from course.worlds.simulator.context import RankDied
from course.worlds.simulator.log import encode_cause, pack_wait
from course.worlds.simulator.rank import SimulatedTransport
from course.worlds.simulator.requests import TaskRequest
from course.worlds.simulator.torch_state import set_initial_state


class SimulatedBackground(SimulatedTransport):
    """The same rank to all others as `main`, the transport that it belongs to."""

    def __init__(self, main):
        self.tasks = TaskQueue(main.context)
        super().__init__(
            main.simulation, self.tasks.context, device=main.device, checked=main.checked,
            meter=main.meter, trace=main.trace,
        )  # fmt: skip

    @property
    def transport(self) -> SimulatedTransport:
        """What these calls reach the others by: itself."""
        return self

    def submit(self, call) -> TaskRequest:
        """Do `call()` once all that was submitted before is over; not before now."""
        return self.tasks.add(call)

    def join(self, request):
        """Block until it is over; then its value or error is known."""
        self.tasks.join(request)

    def finish(self):
        """Wait for what nobody has waited for, and raise what went wrong in it."""
        self.tasks.add(super().finish)
        self.tasks.join_all()


class TaskQueue:
    """Calls that a context of their own does, one after another, for the context `main`."""

    def __init__(self, main):
        self.main, self.pending, self.unjoined, self.idle = main, deque(), [], True
        self.context = main.simulation.add_context(main.rank, main.processor, self._run)

    def add(self, call) -> TaskRequest:
        request = TaskRequest(call, self.context, self.main.time)
        self.pending.append(request)
        self.unjoined.append(request)
        if self.idle:
            self.idle = False
            self.context.wake()
        return request

    def join(self, request):
        if not request.done:
            self.main.block(request, "a wait for what it has begun")
        if request.at > self.main.time:
            self.main.wait_until(request.at, request.cause)
        request.value, request.error = request.task.value, request.task.error
        if request in self.unjoined:
            self.unjoined.remove(request)

    def join_all(self):
        for request in list(self.unjoined):
            self.join(request)
            if request.error:
                raise request.error

    def _run(self):
        set_initial_state()
        with contextlib.suppress(RankDied):
            while True:
                while self.pending:
                    self._do(self.pending.popleft())
                self.idle = True
                self.context.coroutine.pause()

    def _do(self, request):
        context, task = self.context, request.task
        if request.begun > context.time:
            context.waits += pack_wait(context.time, request.begun, encode_cause(self.main.index))
            context.time = request.begun
        task.run()
        if isinstance(task.error, RankDied | GreenletExit | KeyboardInterrupt):
            raise task.error
        request.complete(self.main, context.time)
