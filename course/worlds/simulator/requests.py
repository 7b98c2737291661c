"""What an imagined rank can wait for: a message on its way out, a place for one, what all say, what
it has begun.

Each is `done` from the second `at` on, and `cause` says to the ledger what it was.
"""

from course.comm.task import Task
from course.worlds.simulator.flows import NEVER, Flow
from course.worlds.simulator.log import cause_of


class Message(Flow):
    """A tensor on its way; what its sender waits for.  Times in seconds; `came` is None until the
    last byte has arrived, `done` once the sender may go on, from `at` on."""

    source = receive = came = error = None
    any_of = done = False

    def __init__(self, src, dst, route, envelope, tensor, confirm):
        self.route, self.bottleneck, self.left = route, route.narrowest, envelope[4]
        self.src, self.dst, self.envelope, self.tensor = src, dst, envelope, tensor
        self.nbytes, self.sent, self.confirm = envelope[4], src.time, confirm

    def under_way(self, at) -> bool:
        """Whether at that time it has been sent and has not come."""
        return self.sent <= at and self.came is None and self.entry != NEVER

    @property
    def needs(self) -> set:
        """The ranks without which it can never be done."""
        waits = self.dst.lost or (self.confirm and self.receive is None)
        return {self.dst.rank} if waits else set()


class Receive:
    """A place for the next fitting message from one of `sources`; `source` is whom it came from."""

    unload = source = message = error = entry = None
    done = False

    def __init__(self, owner, sources, envelope, out):
        self.owner, self.sources, self.envelope, self.out = owner, sources, envelope, out
        self.posted = owner.time

    @property
    def any_of(self) -> bool:
        return len(self.sources) > 1

    def under_way(self, at) -> bool:
        return self.message is not None and self.message.under_way(at)

    @property
    def needs(self) -> set:
        """The ranks of which one must still send it."""
        return set(self.sources) if self.source is None else set()


class Sharing:
    """What all `members` say of one call: done when everyone has spoken."""

    any_of, error = False, None

    def __init__(self, members):
        self.members, self.said, self.wires, self.done = members, {}, [], False

    @property
    def needs(self) -> set:
        return set(self.members) - self.said.keys()

    def under_way(self, at) -> bool:
        return False


class Turn:
    """Wait for it until a piece of work is over."""

    any_of, done, error, value = False, False, None, None

    def __init__(self, call, doer, begun):
        self.work, self.doer, self.begun = Task(call), doer, begun
        self.cause, self.needs = cause_of(doer.number), {doer.rank}

    def under_way(self, at) -> bool:  # whoever does it has its own time-outs
        return True
