"""Messages of an imagined cluster: send them, find the receives that they are for, hand them over.

A message pays the latency of its route once, then flows over it at its fair share of every link.
It is sent whether or not its receive is there.
"""

import torch

from course.comm.errors import CommMismatch, differing
from course.worlds.simulator.flows import NEVER, Flows
from course.worlds.simulator.requests import Receive

UNCOUNTED = torch._C._DisableTorchDispatch  # what the cluster copies is no rank's work


class Post:
    """Messages that nobody has claimed yet, and receives that wait for one.

    A key is (dst, src, group, call, tag), a box the same without the source.  While a box has a
    receive from anyone, all that is posted after it stands in line behind it.
    """

    def __init__(self, agenda, ledger):
        self.agenda, self.ledger, self.flows = agenda, ledger, Flows(agenda, self._arrive)
        self.unclaimed, self.expected, self.lines, self.stirred = {}, {}, {}, {}

    def send(self, message):
        """Let a message go, at its sender's time."""
        dst, src, envelope = message.dst, message.src, message.envelope
        message.key = key = (dst.rank, src.rank, envelope[0], envelope[1], envelope[2])
        receive = _first(self.expected, key)
        if receive is None:
            self.unclaimed.setdefault(key, []).append(message)
        else:
            self._claim(message, receive)
        src.outgoing[message] = None
        if src is dst:
            return self._arrive(message)
        act = self.flows.begin if message.nbytes else self._arrive
        self.agenda.at(message.sent + message.route.latency_s, act, message)

    def post(self, receive):
        """Claim a message, or wait for one to come."""
        envelope, dst = receive.envelope, receive.owner.rank
        box = (dst, envelope[0], envelope[1], envelope[2])
        if len(receive.sources) > 1 or box in self.lines:
            receive.key = box
            self.lines.setdefault(box, []).append(receive)
            return self.agenda.at(receive.posted, self._stir, receive)
        receive.key = key = (dst, receive.sources[0], envelope[0], envelope[1], envelope[2])
        message = _first(self.unclaimed, key)
        if message is None:
            self.expected.setdefault(key, []).append(receive)
        else:
            self._claim(message, receive)

    def withdraw(self, receive):
        """Wait no more with `receive`; a message that was to land there is free again."""
        message = receive.message
        if message is not None and not receive.done:
            message.receive = None
            self.unclaimed.setdefault(message.key, []).insert(0, message)
        for waiting in (self.expected, self.lines):
            _remove(waiting, receive)

    def cut(self, message):
        """One end of a message is lost before its last byte has come."""
        if message.entry == NEVER:  # the other end was lost before
            return
        message.entry = NEVER
        if message.began != NEVER:
            self.flows.drop(message)
        if message.receive is not None:
            message.receive.source = message.receive.message = None
        else:
            _remove(self.unclaimed, message)

    def may_come(self, request) -> bool:
        """Whether a message is under way that nobody has claimed and `request` might."""
        if not isinstance(request, Receive) or len(request.key) == 5:
            return False
        dst, *rest = request.key
        return any(self.unclaimed.get((dst, src, *rest)) for src in request.sources)

    def _arrive(self, message):
        """The last byte is there."""
        message.came = message.src.time if message.src is message.dst else self.agenda.now
        message.entry, message.cause = NEVER, self.ledger.note(message)
        if message.receive is not None:
            self._hand_over(message)
        else:
            self._set_aside(message)
        if not message.confirm:
            message.src.released(message, message.came)

    def _set_aside(self, message):
        """It has come, and nobody has asked for it."""
        if not message.tensor.is_meta:  # the sender may do as it likes with it from now on
            with UNCOUNTED():
                message.tensor = message.tensor.detach().clone()
        box = (message.key[0], *message.key[2:])
        if box in self.lines:
            self.stirred[box] = None

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
        if not _agree(message, receive):
            sentence = _disagreement(message, receive)
            receive.error = CommMismatch(sentence)
            receive.owner.wake(receive)
            return message.src.refused(message, sentence)
        message.receive, receive.message, receive.source = receive, message, message.src.rank
        if message.came is not None:
            self._hand_over(message)

    def _hand_over(self, message):
        receive = message.receive
        if message.nbytes and not message.tensor.is_meta:
            with UNCOUNTED():
                out = receive.out.detach()
                out.copy_(message.tensor.detach().reshape(out.shape))
        if receive.owner is not message.dst:
            self.ledger.received(message, receive.owner)
        receive.cause, at = message.cause, max(message.came, receive.posted)
        receive.owner.released(receive, at)
        if message.confirm:
            message.src.released(message, at)
        message.receive = receive.message = None


def _first(waiting, key):
    """Take what has waited longest under `key`, if anything has."""
    queue = waiting.get(key)
    if queue is None:
        return None
    if len(queue) == 1:
        del waiting[key]
    return queue.pop(0)


def _remove(waiting, thing):
    """Let it wait no more, if it does."""
    queue = waiting.get(thing.key, ())
    if thing in queue:
        queue.remove(thing)
        if not queue:
            del waiting[thing.key]


def _agree(message, receive) -> bool:
    return message.envelope == receive.envelope and (
        not message.nbytes or message.tensor.is_meta is receive.out.is_meta
    )


def _disagreement(message, receive) -> str:
    """What is wrong with a message for its receive."""
    src, dst = message.src.rank, message.dst.rank
    if message.envelope != receive.envelope:
        return differing({
            dst: f"recv from rank {src} ({receive.envelope})",
            src: f"send to rank {dst} ({message.envelope})",
        })  # fmt: skip
    one, other = (src, dst) if message.tensor.is_meta else (dst, src)
    return (f"rank {one}'s tensor is on the meta device and has no memory, rank {other}'s of "
            f"the same message has ({message.envelope})")  # fmt: skip
