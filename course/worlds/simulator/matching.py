"""Messages of an imagined cluster: send them, find the receives that they are for, hand them over.

A message pays the latency of its route once, then flows over it at its fair share of every link.
It is sent whether or not its receive is there.
"""

import math

from course.comm.errors import CommMismatch, refusal
from course.worlds.simulator.flows import Flows
from course.worlds.simulator.log import NO_FLOW, MessageLog
from course.worlds.simulator.torch_state import uncounted


class Matcher:
    """Unexpected messages, for which there is no receive yet, and posted receives, for which there
    is no message yet.

    A key is (dst, src, group, call, tag), a box the same without the source.  While a box has a
    receive from any source, all receives that are posted after it stand in line behind it.  A dirty
    box is one in which such receives may be served.
    """

    def __init__(self, queue):
        self.queue, self.log, self.flows = queue, MessageLog(), Flows(queue, self)
        self.unexpected, self.posted, self.any_source, self.dirty = {}, {}, {}, {}

    def send(self, message):
        """Let a message go, at its sender's time."""
        src, key = message.src, message.key
        src.outgoing[message] = None  # no flow yet
        if key in self.posted:
            self._bind(message, _take(self.posted, key))
        elif key in self.unexpected:
            self.unexpected[key].append(message)
        else:
            self.unexpected[key] = [message]
        if key[0] == src.rank:
            self.arrive(message)
        else:
            self.queue.schedule(message.sent + src.routes[key[0]].latency_s, message)

    def receive(self, receive):
        """Take a message that is there already, or wait for one to come."""
        if len(receive.sources) > 1 or self.any_source and receive.box in self.any_source:
            self.any_source.setdefault(receive.box, []).append(receive)
            return self.queue.schedule(receive.posted, receive)
        key = receive.key
        if key in self.unexpected:
            self._bind(_take(self.unexpected, key), receive)
        elif key in self.posted:
            self.posted[key].append(receive)
        else:
            self.posted[key] = [receive]

    def cancel(self, receive):
        """Wait no more with `receive`; a message that was to land there is free again."""
        message = receive.message
        if message is not None and not receive.done:
            message.receive = None
            self.unexpected.setdefault(message.key, []).insert(0, message)
        _remove(self.posted, receive.key, receive)
        _remove(self.any_source, receive.box, receive)

    def drop_all(self, rank, transports):
        """A rank is lost: what is on its way from it or to it never comes."""
        todo = list(transports)
        while todo:
            transport = todo.pop()
            todo += transport.backgrounds
            for message in transport.outgoing:
                if message.came is None and rank in (message.dst, message.src.rank):
                    self._drop(message)

    def _drop(self, message):
        message.came, flow = math.inf, message.src.outgoing[message]
        if flow is None:
            latency_s = message.src.routes[message.dst].latency_s
            self.queue.cancel(message.sent + latency_s, message)
        else:
            self.flows.cancel(flow)
        if message.receive is not None:
            message.receive.source = message.receive.message = None
        else:
            _remove(self.unexpected, message.key, message)

    def may_match(self, receive) -> bool:
        """Whether a message is there, or on its way, that `receive` may be given yet."""
        dst, *rest = receive.box
        return any(self.unexpected.get((dst, src, *rest)) for src in receive.sources)

    def arrive(self, message, flow=None):
        """The last byte is there."""
        src, dst, receive = message.src, message.key[0], message.receive
        message.came = came = message.sent if dst == src.rank else self.queue.now
        if flow is None:
            bottleneck, began = src.routes[dst].bottleneck, NO_FLOW
        else:
            bottleneck, began = flow.bottleneck, flow.began
        message.cause = self.log.add(message, dst, bottleneck, began)
        if receive is not None:
            self._deliver(message, receive)
        else:
            self._keep(message)
        if not message.synchronous:
            message.complete(src.context, came)

    def _keep(self, message):
        """It has come, and no receive for it is there."""
        if not message.tensor.is_meta:  # the sender may do as it likes with it from now on
            with uncounted():
                message.tensor = message.tensor.detach().clone()
        if self.any_source:
            self.dirty[message.key[0], *message.key[2:]] = None

    def match_any_source(self):
        """Serve receives from any source, now that all that comes at this time is there."""
        for box in self.dirty:
            line = self.any_source.get(box, [])
            while line and self._serve(box, line[0]):
                line.pop(0)
            if not line:
                self.any_source.pop(box, None)
        self.dirty.clear()

    def _serve(self, box, receive) -> bool:
        """Whether a receive at the head of its line need not stand there any longer."""
        keys = [(box[0], src, *box[1:]) for src in sorted(receive.sources)]
        heads = [self.unexpected[key][0] for key in keys if key in self.unexpected]
        if receive.any_of:
            here = [m for m in heads if m.came is not None and m.came <= self.queue.now]
            if receive.posted > self.queue.now or not here:
                return False
            heads = [min(here, key=lambda m: (m.came, m.src.rank))]
        if heads:
            self._bind(_take(self.unexpected, heads[0].key), receive)
        else:
            self.posted.setdefault(keys[0], []).append(receive)
        return True

    def _bind(self, message, receive):
        """Bind a message to its receive, if they agree."""
        if message.envelope == receive.envelope and (
            not message.envelope[4] or message.tensor.is_meta is receive.out.is_meta
        ):
            message.receive, receive.message, receive.source = receive, message, message.src.rank
            if message.came is not None:
                self._deliver(message, receive)
        else:
            _reject(message, receive)

    def _deliver(self, message, receive):
        """Copy what has come to where it was wanted; both ends may go on."""
        if message.envelope[4] and not message.tensor.is_meta:
            with uncounted():
                out = receive.out.detach()
                out.copy_(message.tensor.detach().reshape(out.shape))
        receive.cause, context = message.cause, receive.owner.context
        if context.index != message.key[0]:
            self.log.readdress(message.cause, context.index)
        at = message.came if message.came > receive.posted else receive.posted
        receive.complete(context, at)
        if message.synchronous:
            message.complete(message.src.context, at)
        message.receive = receive.message = None


def _take(waiting, key):
    """Take what has waited longest under `key`."""
    line = waiting[key]
    if len(line) == 1:
        del waiting[key]
    return line.pop(0)


def _remove(waiting, key, thing):
    """Let it wait no more, if it does."""
    line = waiting.get(key, ())
    if thing in line:
        line.remove(thing)
        if not line:
            del waiting[key]


def _reject(message, receive):
    """A message that does not fit its receive: both ends are told why."""
    sentence, src = _disagreement(message, receive), message.src
    receive.error = CommMismatch(sentence)
    if receive.owner.context.request is receive:
        receive.owner.context.wake()
    src.outgoing.pop(message, None)
    if not message.synchronous:  # in a call, the receiver will revoke that
        return None if message.envelope.call else src.context.tell(CommMismatch(sentence))
    message.error = CommMismatch(sentence)
    if src.context.request is message:
        src.context.wake()


def _disagreement(message, receive) -> str:
    """What is wrong with a message for its receive."""
    src, dst = message.src.rank, message.dst
    if message.envelope != receive.envelope:
        return refusal(dst, receive.envelope, src, message.envelope)
    one, other = (src, dst) if message.tensor.is_meta else (dst, src)
    return (f"rank {one}'s tensor is on the meta device and has no memory, rank {other}'s of "
            f"the same message has ({message.envelope})")  # fmt: skip
