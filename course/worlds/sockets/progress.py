"""Waiting: messages move, in both directions, whenever a rank waits for one.

Nothing moves behind the program's back.  While a rank waits it learns at once that a peer is gone
or has returned, and whether the others are in a different call.

Calls in the background share all this: one thread at a time has the `lock`, and only one polls the
sockets, without it; it tells the others when something moved.
"""

import threading
import time

from course.comm.errors import CommError, CommMismatch, differing, peer_lost, timed_out
from course.comm.transport import in_background
from course.worlds.sockets.messages import POLL_S, Kind, Receive, Send
from course.worlds.sockets.polling import READ, WRITE, Poller


class Progress:
    """The waits of one rank; `timeout` in seconds bounds each in which nothing moves."""

    def __init__(self, rank: int, receiver, poller: Poller, *, timeout=20.0, checked=True):
        self.rank, self.receiver, self.poller = rank, receiver, poller
        self.timeout, self.checked = timeout, checked
        self.lock, self.polling, self.reported_lost = threading.Lock(), False, set()
        self.news, self.threads = threading.Condition(self.lock), 1

    def wait(self, request, operation):
        """Block, with the lock held, until `request` is done; `operation` says in words what it is.

        Raises CommTimeout when nothing moved for `timeout` seconds, PeerLost when it can never be
        done, CommMismatch when the ranks do not do the same thing.
        """
        try:
            self._move_until_done(request, operation)
        except CommError:  # the program may go on without it
            self.cancel(request)
            raise

    def cancel(self, request):
        """Expect no more of `request`; a message that is under way is not stopped."""
        self.receiver.matcher.cancel(request)
        self.receiver.sender.awaiting_ack.pop(request.number, None)

    def poll(self, timeout_s) -> bool:
        """Move what can be moved, waiting for it up to `timeout_s`.  Whether any did."""
        if self.polling:
            return self.news.wait(timeout_s)
        self.polling = True
        try:
            ready = self.poller.poll(timeout_s, self.lock)
        finally:
            self.polling = False
        for stream, mask in ready:
            if mask & WRITE:
                stream.flush()
            if mask & READ:
                self.receiver.read(stream)
            else:
                self.poller.update(stream)
        if self.threads > 1:
            self.news.notify_all()
        return bool(ready)

    def _move_until_done(self, request, operation):
        quiet_since = asked = time.monotonic()
        moved = None
        while not request.done:
            if self.receiver.held and self._done_by_unblocking(request):
                return
            self._stop_if_in_vain(request, operation)
            request.block(self)
            now = time.monotonic()
            if now - asked < POLL_S:
                continue
            request.late()
            before, asked, moved = moved, now, self._moved(request)
            if moved != before:
                quiet_since = now
            elif self.timeout is not None and now - quiet_since > self.timeout:
                raise timed_out(self.rank, self.timeout, operation)

    def _done_by_unblocking(self, request) -> bool:
        """Whether what stood before the awaited message was all that kept it from being done."""
        awaited = (receive.needs for receive in self.receiver.matcher.posted)
        self.receiver.unblock(set(request.needs).union(*awaited))
        return request.done

    def _moved(self, request) -> int:
        """How much has moved between this rank and those that it waits for."""
        streams = self.receiver.sender.streams
        return sum(streams[peer].moved for peer in request.needs if peer != self.rank)

    def _stop_if_in_vain(self, request, operation):
        receiver = self.receiver
        if request.error:
            raise request.error
        if receiver.pending_error:
            sentence, receiver.pending_error = receiver.pending_error, None
            raise CommMismatch(sentence)
        if request.envelope[:2] in receiver.revoked:
            raise CommMismatch(receiver.revoked[request.envelope[:2]])
        if receiver.ended:
            self._stop_if_ended(request, operation)
        if self.checked and receiver.roll_calls.said and not request.envelope.call:
            self._stop_if_elsewhere(request, operation)

    def _stop_if_ended(self, request, operation):
        needs, streams = set(request.needs) - {self.rank}, self.receiver.sender.streams
        ended = needs & self.receiver.ended
        lost = {peer for peer in ended if streams[peer].lost}
        ended = request.gone(ended, lost)
        newly_lost = lost & ended - self.reported_lost
        if ended and (newly_lost or not request.any_of or ended == needs):
            self.reported_lost |= newly_lost
            gone = newly_lost or ended
            raise peer_lost(gone, bool(gone & lost), self.rank, operation)

    def _stop_if_elsewhere(self, request, operation):
        """Whoever waits in a roll call for this rank answers no message of it."""
        if not isinstance(request, Send | Receive) or in_background(request.envelope.group):
            return None
        roll_calls = self.receiver.roll_calls
        waiting, needs = roll_calls.elsewhere(), set(request.needs) - {self.rank}
        if not needs or not needs <= waiting.keys():
            return None
        if isinstance(request, Send) and not request.unwanted:  # it may have a place for it
            return self._probe(request)
        if isinstance(request, Send) or request in self.receiver.matcher.posted:
            labels = roll_calls.answer({waiting[peer] for peer in needs}, operation)
            raise CommMismatch(differing({self.rank: str(operation)} | labels))

    def _probe(self, message):
        """Ask once whether the receiver of a message, in a roll call, has a place for it."""
        if not message.probed and not message.accepted:
            message.probed, sender = True, self.receiver.sender
            sender.tell(*message.needs, Kind.PROBE, number=message.number)
