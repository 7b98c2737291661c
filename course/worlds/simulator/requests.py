"""What an imagined rank can wait for: a message that it has sent, a place for one, a roll call, a
call in the background."""

from course.comm.errors import misfit
from course.comm.task import Task
from course.comm.transport import Envelope
from course.worlds.simulator.flows import Flow
from course.worlds.simulator.log import NO_FLOW, encode_cause


class Request:
    """Done from the second `at` on, by `cause` as the log has it; or there is an `error`.

    `any_of`: one of those that it waits for is enough.
    """

    __slots__ = ()
    done, error, source, any_of, envelope = False, None, None, False, Envelope()

    def complete(self, context, at):
        """`context`, whose request this is, need not wait for it any more from `at` on."""
        self.done, self.at = True, at
        if context.request is self:
            context.wake()

    def in_flight(self, at) -> bool:
        """Whether a message moves at that time by which it may be done."""
        return False


class Message(Request, Flow):
    """A tensor on its way to rank `dst`: what its sender waits for, and the flow of its bytes.

    `key` says which receives it is for: of which rank, from which, group, call, tag.
    `came` is when its last byte arrived: infinite if it never will, since one of its ranks was
    lost.  A synchronous message is done when it has been received as well.
    """

    __slots__ = ("done", "at", "cause", "error", "src", "key", "envelope", "tensor", "synchronous",
                 "sent", "came", "receive")  # fmt: skip

    def __init__(self, src, dst, route, envelope, tensor, synchronous):
        self.src, self.envelope, self.tensor = src, envelope, tensor
        group, call, tag, _, self.left = envelope
        self.key = dst, src.rank, group, call, tag
        self.sent = sent = src.context.time
        self.done, self.synchronous = False, synchronous
        self.came = self.receive = self.error = None
        self.route, self.bottleneck = route, route.bottleneck
        self.began, self.due = NO_FLOW, sent + route.latency_s

    @property
    def dst(self) -> int:
        return self.key[0]

    def happen(self):
        """The latency is over and the bytes flow; or the last one is there."""
        matcher = self.src.matcher
        if self.began != NO_FLOW:
            matcher.flows.end(self)
            matcher.arrive(self)
        elif self.left:
            matcher.flows.begin(self)
        else:
            matcher.arrive(self)

    def complete(self, context, at):
        self.src.outgoing.pop(self, None)
        self.done, self.at = True, at
        if context.request is self:
            context.wake()

    def in_flight(self, at) -> bool:
        return self.sent <= at and self.came is None

    def waits_for(self, lost) -> set:
        """The ranks without which it can never be done; `lost` are those that have failed."""
        waits = self.dst in lost or (self.synchronous and self.receive is None)
        return {self.dst} if waits else set()


class Receive(Request):
    """A place for the next fitting message from one of `sources`; `source` is whom it came from.

    `key` says which messages it is for if there is one source; see `Message`.
    """

    __slots__ = ("done", "at", "cause", "error", "owner", "sources", "key", "envelope", "out",
                 "posted", "source", "message")  # fmt: skip
    unload = None  # a message is copied as soon as it has come

    def __init__(self, owner, sources, envelope, out):
        self.owner, self.sources, self.envelope, self.out = owner, sources, envelope, out
        self.key = owner.rank, sources[0], envelope[0], envelope[1], envelope[2]
        self.posted, self.done = owner.context.time, False
        self.source = self.message = self.error = None

    @property
    def any_of(self) -> bool:
        return len(self.sources) > 1

    @property
    def box(self) -> tuple:
        """Its key without the source."""
        return (self.key[0], *self.key[2:])

    def happen(self):
        """The cluster has come to the time at which it was posted."""
        self.owner.matcher.dirty[self.box] = None

    def in_flight(self, at) -> bool:
        return self.message is not None and self.message.in_flight(at)

    def waits_for(self, lost) -> set:
        """The ranks of which one must still send it."""
        return set(self.sources) if self.source is None else set()


class RollCall(Request):
    """What all `members` say of one call: done when everyone has answered."""

    def __init__(self, members):
        self.members, self.texts, self.contexts = members, {}, []

    def answer(self, context, text):
        """What the rank of `context` says; when it is the last, all go on from its time on."""
        self.texts[context.rank] = text
        self.contexts.append(context)
        if len(self.texts) == len(self.members):
            last = max(self.contexts, key=lambda context: (context.time, -context.rank))
            self.cause = encode_cause(last.index)
            for each in self.contexts:
                self.complete(each, last.time)

    def waits_for(self, lost) -> set:
        return set(self.members) - self.texts.keys()


class TaskRequest(Request):
    """A call in the background, in `context`; submitted at `begun`."""

    value = None

    def __init__(self, call, context, begun):
        self.task, self.context, self.begun = Task(call), context, begun
        self.cause = encode_cause(context.index)

    def in_flight(self, at) -> bool:  # the context has time-outs of its own
        return True

    def waits_for(self, lost) -> set:
        return {self.context.rank}


def disagreement(message, receive) -> str:
    """What is wrong with a message for its receive."""
    src, dst = message.src.rank, message.dst
    if message.envelope != receive.envelope:
        return misfit(dst, receive.envelope, src, message.envelope)
    one, other = (src, dst) if message.tensor.is_meta else (dst, src)
    return (f"rank {one}'s tensor is on the meta device and has no memory, rank {other}'s of "
            f"the same message has ({message.envelope})")  # fmt: skip
