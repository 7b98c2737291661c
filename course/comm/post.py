"""Messages of an imagined cluster: send them, find the receives that they are for, hand them over.

A message pays the latency of its route once, then flows over it at its fair share of every link.
It is sent whether or not its receive is there.
"""

import torch

from course.comm.errors import CommMismatch, differing
from course.comm.flows import NEVER, Flow, Flows

UNCOUNTED = torch._C._DisableTorchDispatch  # what the cluster copies is no rank's work


class Message(Flow):
    """A tensor on its way; what its sender waits for.  Times in seconds; `came` is None until the
    last byte has arrived, `done` once the sender may go on, from `at` on."""

    __slots__ = ("src", "dst", "nbytes", "envelope", "tensor", "confirm", "receive", "sent",
                 "began", "came", "done", "at", "error", "key")  # fmt: skip
    source, any_of = None, False

    def __init__(self, src, dst, route, envelope, tensor, confirm):
        nbytes = envelope[4]
        Flow.__init__(self, route, nbytes)
        self.src, self.dst, self.envelope, self.tensor = src, dst, envelope, tensor
        self.nbytes, self.sent, self.confirm, self.done = nbytes, src.time, confirm, False
        self.receive = self.began = self.came = self.error = None

    @property
    def cause(self):
        """What a rank that waits for it waits for."""
        return self

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

    __slots__ = ("owner", "sources", "envelope", "out", "posted", "source", "done", "at", "error",
                 "key", "cause", "entry")  # fmt: skip
    unload = None

    def __init__(self, owner, sources, envelope, out):
        self.owner, self.sources, self.envelope, self.out = owner, sources, envelope, out
        self.posted, self.done, self.at = owner.time, False, 0.0
        self.source = self.error = self.cause = self.entry = None

    @property
    def any_of(self) -> bool:
        return len(self.sources) > 1

    def under_way(self, at) -> bool:
        return self.cause is not None and self.cause.under_way(at)

    @property
    def needs(self) -> set:
        """The ranks of which one must still send it."""
        return set(self.sources) if self.source is None else set()


class Post:
    """Messages that nobody has claimed yet, and receives that wait for one.

    A key is (dst, src, group, call, tag), a box the same without the source.  While a box has a
    receive from anyone, all that is posted after it stands in line behind it.
    """

    def __init__(self, agenda):
        self.agenda, self.flows = agenda, Flows(agenda, self._arrive)
        self.unclaimed, self.expected, self.lines, self.stirred = {}, {}, {}, {}
        self.messages = []

    def send(self, message):
        """Let a message go, at its sender's time."""
        dst, src, envelope = message.dst, message.src, message.envelope
        message.key = key = (dst.rank, src.rank, envelope[0], envelope[1], envelope[2])
        places = self.expected.get(key)
        if places is None:
            self.unclaimed.setdefault(key, []).append(message)
        else:
            self._claim(message, _first(self.expected, key))
        src.outgoing[message] = None
        self.messages.append(message)
        if src is dst:
            return self._arrive(message)
        act = self._begin if message.nbytes else self._arrive
        self.agenda.at(message.sent + message.route.latency_s, act, message)

    def post(self, receive):
        """Claim a message, or wait for one to come."""
        envelope, dst = receive.envelope, receive.owner.rank
        box = (dst, envelope[0], envelope[1], envelope[2])
        if receive.any_of or box in self.lines:
            receive.key = box
            self.lines.setdefault(box, []).append(receive)
            return self.agenda.at(receive.posted, self._stir, receive)
        (src,) = receive.sources
        receive.key = key = (dst, src, envelope[0], envelope[1], envelope[2])
        if key in self.unclaimed:
            self._claim(_first(self.unclaimed, key), receive)
        else:
            self.expected.setdefault(key, []).append(receive)

    def withdraw(self, receive):
        """Wait no more with `receive`; a message that was to land there is free again."""
        message = receive.cause
        if message is not None and not receive.done:
            message.receive = None
            self.unclaimed.setdefault(message.key, []).insert(0, message)
        for waiting in (self.expected, self.lines):
            if receive in waiting.get(receive.key, ()):
                waiting[receive.key].remove(receive)
                if not waiting[receive.key]:
                    del waiting[receive.key]

    def cut(self, message):
        """One end of a message is lost before its last byte has come."""
        if message.entry == NEVER:  # the other end was lost before
            return
        message.entry = NEVER
        if message.began is not None:
            self.flows.drop(message)
        if message.receive is not None:
            message.receive.source = message.receive.cause = None
        elif message in self.unclaimed.get(message.key, ()):
            self.unclaimed[message.key].remove(message)

    def may_come(self, request) -> bool:
        """Whether a message is under way that nobody has claimed and `request` might."""
        if not isinstance(request, Receive) or len(request.key) == 5:
            return False
        dst, *rest = request.key
        return any(self.unclaimed.get((dst, src, *rest)) for src in request.sources)

    def _begin(self, message):
        message.began = self.agenda.now
        self.flows.begin(message)

    def _arrive(self, message):
        """The last byte is there."""
        message.came = message.src.time if message.src is message.dst else self.agenda.now
        message.entry = NEVER
        if message.receive is not None:
            self._hand_over(message)
        else:
            if not message.tensor.is_meta:  # the sender may do as it likes with it from now on
                with UNCOUNTED():
                    message.tensor = message.tensor.detach().clone()
            box = (message.key[0], *message.key[2:])
            if box in self.lines:
                self.stirred[box] = None
        if not message.confirm:
            self._release(message, message.came, message)

    def _stir(self, receive):
        if receive.key in self.lines:
            self.stirred[receive.key] = None

    def sort(self):
        """Serve receives from anyone, now that all that comes at this time is there."""
        for box in self.stirred:
            line = self.lines.get(box, [])
            while line and self._serve(box, line[0]):
                line.pop(0)
            if not line:
                self.lines.pop(box, None)
        self.stirred.clear()

    def _serve(self, box, receive) -> bool:
        """Whether a receive at the head of its line need not stand there any longer."""
        keys = [(box[0], src, *box[1:]) for src in sorted(receive.sources)]
        heads = [self.unclaimed[key][0] for key in keys if key in self.unclaimed]
        if receive.any_of:
            here = [m for m in heads if m.came is not None and m.came <= self.agenda.now]
            if receive.posted > self.agenda.now or not here:
                return False
            heads = [min(here, key=lambda m: (m.came, m.src.rank))]
        if heads:
            self._claim(_first(self.unclaimed, heads[0].key), receive)
        else:
            receive.key = keys[0]
            self.expected.setdefault(receive.key, []).append(receive)
        return True

    def _claim(self, message, receive):
        """Bind a message to its receive, if they agree."""
        sentence = _disagreement(message, receive)
        if sentence:
            receive.error = CommMismatch(sentence)
            receive.owner.wake(receive)
            return message.src.refused(message, sentence)
        message.receive, receive.cause, receive.source = receive, message, message.src.rank
        if message.came is not None:
            self._hand_over(message)

    def _hand_over(self, message):
        receive = message.receive
        if message.nbytes and not message.tensor.is_meta:
            with UNCOUNTED():
                out = receive.out.detach()
                out.copy_(message.tensor.detach().reshape(out.shape))
        self._release(receive, max(message.came, receive.posted), message)
        if message.confirm:
            self._release(message, max(message.came, receive.posted), message)
        message.tensor = message.envelope = message.key = receive.out = None
        if receive.posted <= message.came:  # else a record will ask who was late
            message.receive = None

    def _release(self, request, at, message):
        """A rank need not wait for `request` any longer, from `at` on."""
        request.done, request.at = True, at
        if request is message:
            message.src.outgoing.pop(message, None)
            message.src.wake(message)
        else:
            request.owner.wake(request)


def _first(waiting, key):
    """Take what has waited longest under `key`."""
    queue = waiting[key]
    if len(queue) == 1:
        del waiting[key]
    return queue.pop(0)


def _disagreement(message, receive) -> str:
    """What is wrong with a message for its receive, if anything."""
    src, dst = message.src.rank, message.dst.rank
    if message.envelope != receive.envelope:
        return differing({
            dst: f"recv from rank {src} ({receive.envelope})",
            src: f"send to rank {dst} ({message.envelope})",
        })  # fmt: skip
    if message.nbytes and message.tensor.is_meta != receive.out.is_meta:
        one, other = (src, dst) if message.tensor.is_meta else (dst, src)
        return (f"rank {one}'s tensor is on the meta device and has no memory, rank {other}'s of "
                f"the same message has ({message.envelope})")  # fmt: skip
    return ""
