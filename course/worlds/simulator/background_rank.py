"""A second course of events of an imagined rank: what is begun runs on a clock of its own, one
piece of work after another, while the rank goes on with its own."""

import contextlib
from collections import deque

from greenlet import GreenletExit

from course.worlds.simulator.coroutines import Fibre, plain_state
from course.worlds.simulator.log import cause_of, pack_hold
from course.worlds.simulator.rank import Died, Imagined
from course.worlds.simulator.requests import Turn


class Sideline(Imagined):
    """Beside the rank whose wire is `main`: the same rank to all others."""

    def __init__(self, main, number):
        super().__init__(
            main.rank, main.cluster, main.place, device=main.device, checked=main.checked,
            slowness=main.slowness, dies_at=main.dies_at,
        )  # fmt: skip
        self.transport = self
        self.main, self.number, self.lane = main, number, 1 + len(main.beside)
        self.meter, self.trace, self.random = main.meter, main.trace, main.random
        self.todo, self.idle, self.unheard, self.fibre = deque(), True, [], Fibre(self._live)

    def submit(self, call) -> Turn:
        """Do `call()` once all that was begun before is over; not before now."""
        turn = Turn(call, self, self.main.time)
        self.todo.append(turn)
        self.unheard.append(turn)
        if self.idle:
            self.idle = False
            self.cluster.ready.append(self)
        return turn

    def join(self, turn):
        """Block until it is over; then its value or error is known."""
        self.main.wait(turn, "a wait for what it has begun")
        turn.value, turn.error = turn.work.value, turn.work.error
        if turn in self.unheard:
            self.unheard.remove(turn)

    def finish(self):
        """Wait for what nobody has waited for, and raise what went wrong in it."""
        self.submit(super().finish)
        for turn in list(self.unheard):
            self.join(turn)
            if turn.error:
                raise turn.error

    def _live(self):
        plain_state()
        with contextlib.suppress(Died):
            while True:
                while self.todo:
                    self._do(self.todo.popleft())
                self.idle = True
                self.fibre.pause()

    def _do(self, turn):
        if turn.begun > self.time:
            self.holds += pack_hold(self.time, turn.begun, cause_of(self.main.number))
            self.time = turn.begun
        turn.work.run()
        if isinstance(turn.work.error, (Died, GreenletExit, KeyboardInterrupt)):
            raise turn.work.error
        self.main.released(turn, self.time)
