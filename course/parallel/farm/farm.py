"""A farm of tasks: rank 0, the manager, hands them out, and whoever is done is given the next.

    outcomes = farm(comm, work, arguments)      work(argument) for each; on rank 0, in their order

A task that raises is reported, and the others go on.  A worker that is lost loses the task that it
was at, and another does it.  With one rank, or none left, the manager works itself.
"""

import contextlib
from collections import deque
from enum import IntEnum
from typing import NamedTuple

import cloudpickle
import torch

from course.comm import ANY, LAST_TAG, PeerLost
from course.comm.counts import required_count
from course.comm.errors import listed
from course.parallel.server.messages import head

STOP = -1  # instead of a task's number


class Tag(IntEnum):
    """Of a task's or an outcome's number and length, and of itself; out of the way of others'."""

    HEAD, BODY = LAST_TAG - 4, LAST_TAG - 3


class Outcome(NamedTuple):
    """What a task's `value` is, or the text of its `error`; which rank did it, from when to when by
    its clock; and which ranks were `lost` at it before."""

    value: object = None
    error: str | None = None
    rank: int | None = None
    began_s: float = 0.0
    ended_s: float = 0.0
    lost: tuple = ()


def farm(comm, work, arguments, *, attempts: int = 2) -> list[Outcome] | None:
    """work(argument) for each of rank 0's `arguments`: their outcomes, in order; None elsewhere.

    Arguments and values travel by pickle; only rank 0's `arguments` are looked at.  What a task
    gives should not depend on the rank that does it: one that draws has a seed.  A task at which
    `attempts` ranks were lost is given up.  A task has to take less than the run's time-out.
    Cost: to and from a worker 16 bytes and the pickle for each task.
    Raises PeerLost on workers if rank 0 is lost, ValueError for what cannot be.
    """
    return manage(comm, work, lambda hand_out: hand_out(arguments), attempts=attempts)


def manage(comm, work, lead, *, attempts: int = 2):
    """What `lead(hand_out)` returns on rank 0, which calls hand_out(arguments) -> [Outcome] as
    often as it likes; the others do what is handed out until it returns, and return None.

    See `farm`.  If `lead` raises, the workers hear that rank 0 was lost.
    """
    attempts = required_count(attempts, "attempts", comm.rank)
    if comm.rank != 0:
        return _serve(comm, work)
    manager = _Manager(comm, work, attempts)
    value = lead(manager.hand_out)
    manager.stop()
    return value


class _Manager:
    """Who is idle and who is busy with which task, of the workers that are still there."""

    def __init__(self, comm, work, attempts):
        self.comm, self.work, self.attempts = comm, work, attempts
        self.idle, self.busy = deque(range(1, comm.size)), {}
        self.tasks, self.waiting, self.outcomes, self.lost = [], deque(), {}, {}

    def hand_out(self, arguments) -> list[Outcome]:
        """The outcomes of all tasks, in their order."""
        self.tasks = list(arguments)
        self.waiting, self.outcomes, self.lost = deque(range(len(self.tasks))), {}, {}
        while len(self.outcomes) < len(self.tasks):
            while self.waiting and self.idle:
                self._assign(self.waiting.popleft(), self.idle.popleft())
            if self.busy:
                self._collect()
            elif self.waiting:
                number = self.waiting.popleft()
                self.outcomes[number] = attempt(self.comm, self.work, self.tasks[number])
        return [self.outcomes[number]._replace(lost=tuple(self.lost.get(number, ())))
                for number in range(len(self.tasks))]  # fmt: skip

    def stop(self):
        """Let the workers return, who are all idle."""
        for worker in self.idle:
            with contextlib.suppress(PeerLost):
                self.comm.send(head(STOP, 0), worker, Tag.HEAD)

    def _assign(self, number, worker):
        self.busy[worker] = number
        try:
            _send(self.comm, number, cloudpickle.dumps(self.tasks[number]), worker)
        except PeerLost as error:
            self._drop(error)

    def _collect(self):
        """Take in the next outcome, or the loss of a worker."""
        try:
            worker, number, said = _receive(self.comm, ANY)
        except PeerLost as error:
            return self._drop(error)
        if self.busy.pop(worker, STOP) == number:
            self.outcomes[number] = said
            self.idle.append(worker)

    def _drop(self, error):
        """Workers are lost: what they were at is handed out again, unless it is given up."""
        for worker in [w for w in (*self.idle, *self.busy) if self.comm.members[w] in error.ranks]:
            if worker in self.idle:
                self.idle.remove(worker)
                continue
            number = self.busy.pop(worker)
            lost = self.lost.setdefault(number, [])
            lost.append(worker)
            if len(lost) < self.attempts:
                self.waiting.appendleft(number)
            else:
                self.outcomes[number] = Outcome(error=f"{listed(lost)} were lost at it")


def attempt(comm, work, argument) -> Outcome:
    """The outcome of work(argument), whatever it raises."""
    value, error, began_s = None, None, comm.clock()
    try:
        value = work(argument)
    except Exception as problem:  # a task may raise what it likes
        error = f"{type(problem).__name__}: {problem}"
    return Outcome(value, error, comm.rank, began_s, comm.clock())


def _serve(comm, work):
    """Do one task after another until there is none left."""
    while True:
        _, number, argument = _receive(comm, 0)
        if number == STOP:
            return
        done = attempt(comm, work, argument)
        try:
            packed = cloudpickle.dumps(done)
        except Exception as problem:  # pickling runs any object's own code
            why = f"a {type(done.value).__name__} cannot be sent back: {problem}"
            packed = cloudpickle.dumps(done._replace(value=None, error=why))
        _send(comm, number, packed, 0)


def _send(comm, number, packed: bytes, dst):
    """Send task `number` or its outcome: 16 bytes, then the pickle."""
    comm.send(head(number, len(packed)), dst, Tag.HEAD)
    comm.send(torch.frombuffer(bytearray(packed), dtype=torch.uint8), dst, Tag.BODY)


def _receive(comm, src) -> tuple:
    """From whom, a task's number, and what belongs to it; nothing does to STOP."""
    told = head(0, 0)
    source = comm.recv(told, src, Tag.HEAD)
    number, length = told.tolist()
    if number == STOP:
        return source, number, None
    body = torch.empty(length, dtype=torch.uint8, device="cpu")
    comm.recv(body, source, Tag.BODY)
    return source, number, cloudpickle.loads(body.numpy().tobytes())
