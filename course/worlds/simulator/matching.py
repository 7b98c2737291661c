"""Which message is for which receive: posted receives, and the queue of unexpected messages.

A message pays the latency of its route once, then flows over it at its fair share of every link.
It is sent whether or not its receive is there.
"""

import math

from course.comm.errors import CommMismatch
from course.worlds.simulator.flows import Flows
from course.worlds.simulator.log import MessageLog
from course.worlds.simulator.requests import disagreement
from course.worlds.simulator.torch_state import uncounted


class Matcher:
    """A message is for the first posted receive that it matches, a receive for the first
    unexpected message of a source that matches it.

    Both are under their keys, (dst, src, group, call, tag); a box is a key without the source.
    While a box has a receive from any source, all receives that are posted after it stand in line
    behind it.  A dirty box is one in which such receives may be served.
    """

    def __init__(self, queue):
        self.queue, self.log, self.flows = queue, MessageLog(), Flows(queue)
        self.unexpected, self.posted, self.any_source, self.dirty = {}, {}, {}, {}

    def send(self, message):
        """Let a message go, at its sender's time."""
        src, key = message.src, message.key
        src.outgoing[message] = None
        if key in self.posted:
            self._match(message, _take(self.posted, key))
        else:
            self.unexpected.setdefault(key, []).append(message)
        if key[0] == src.rank:
            self.arrive(message)
        else:
            self.queue.schedule(message.due, message)

    def post(self, receive):
        """Take a message that is there already, or wait for one to come."""
        if len(receive.sources) > 1 or self.any_source and receive.box in self.any_source:
            self.any_source.setdefault(receive.box, []).append(receive)
            return self.queue.schedule(receive.posted, receive)
        key = receive.key
        if key in self.unexpected:
            self._match(_take(self.unexpected, key), receive)
        else:
            self.posted.setdefault(key, []).append(receive)

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
        message.came = math.inf
        self.flows.cancel(message)
        if message.receive is not None:
            message.receive.source = message.receive.message = None
        else:
            _remove(self.unexpected, message.key, message)

    def may_match(self, receive) -> bool:
        """Whether a message is there, or on its way, that `receive` may be given yet."""
        dst, *rest = receive.box
        return any(self.unexpected.get((dst, src, *rest)) for src in receive.sources)

    def arrive(self, message):
        """The last byte is there."""
        src, receive = message.src, message.receive
        message.came = came = message.sent if message.key[0] == src.rank else self.queue.now
        message.cause = self.log.add(message)
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
        """Serve receives from any source, once all messages of this time have come."""
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
            self._match(_take(self.unexpected, heads[0].key), receive)
        else:
            self.posted.setdefault(keys[0], []).append(receive)
        return True

    def _match(self, message, receive):
        """Give a receive its message, if they agree."""
        if message.envelope == receive.envelope and (
            not message.envelope[4] or message.tensor.is_meta is receive.out.is_meta
        ):
            message.receive, receive.message, receive.source = receive, message, message.src.rank
            if message.came is not None:
                self._deliver(message, receive)
        else:
            _refuse(message, receive)

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
    line = waiting.pop(key)
    if len(line) > 1:
        waiting[key] = line
    return line.pop(0)


def _remove(waiting, key, thing):
    """Let it wait no more, if it does."""
    line = waiting.get(key, ())
    if thing in line:
        line.remove(thing)
        if not line:
            del waiting[key]


def _refuse(message, receive):
    """A message that does not fit its receive: both ends are told why."""
    sentence, src = disagreement(message, receive), message.src
    receive.error = CommMismatch(sentence)
    if receive.owner.context.request is receive:
        receive.owner.context.wake()
    src.outgoing.pop(message, None)
    if not message.synchronous:  # in a call, the receiver will revoke that
        return None if message.envelope.call else src.context.tell(CommMismatch(sentence))
    message.error = CommMismatch(sentence)
    if src.context.request is message:
        src.context.wake()
