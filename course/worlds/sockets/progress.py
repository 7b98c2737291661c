"""Messages between processes: post a send, post a receive, wait.

Nothing moves behind the program's back: a rank moves its messages, in both directions, whenever it
waits for one.  While it waits it learns at once that a peer is gone or has returned, and whether
the others are in a different call.

Calls that run beside the rank's own work share its wire: one thread at a time is `inside`, and
only one listens to the sockets, without being inside; it tells the others when something moved.
"""

import threading
import time

from course.comm.errors import CommError, CommMismatch, CommTimeout, PeerLost, differing, listed
from course.comm.transport import WORLD, Envelope, in_background
from course.worlds.sockets.background_thread import Companion
from course.worlds.sockets.messages import Kind, Sharing
from course.worlds.sockets.receiving import Incoming
from course.worlds.sockets.sending import READ, WRITE

LOOK_UP_S = 0.2  # how often a waiting rank looks up from its sockets


class Wire(Incoming):
    """One rank's messages; `timeout` in seconds bounds each wait in which nothing moves."""

    def __init__(self, rank: int, sockets: dict, *, lanes=None, timeout=20.0, checked=True):
        super().__init__(rank, sockets, lanes or {})
        self.timeout, self.checked = timeout, checked
        self.mourned, self.entered = set(), {}
        self.inside = threading.Condition(threading.Lock())
        self.listened, self.companions = False, []

    def background(self, group) -> Companion:
        """This wire for what a group's ranks do beside their own work."""
        self.companions.append(Companion(self, self.windows[1] if group == WORLD else None))
        return self.companions[-1]

    def send(self, *args, **kwargs):
        """Post a message; see `Outgoing.send`."""
        with self.inside:
            return super().send(*args, **kwargs)

    def receive(self, *args):
        """Post a place for a message; see `Incoming.receive`."""
        with self.inside:
            return super().receive(*args)

    def wait(self, request, doing):
        """Block until `request` is done; `doing` says in words what that is.

        Raises CommTimeout when nothing moved for `timeout` seconds, PeerLost when it can never be
        done, CommMismatch when the ranks do not do the same thing.
        """
        with self.inside:
            self._wait(request, doing)

    def cancel(self, request):
        """Expect no more of `request`; a message that is under way is not stopped."""
        with self.inside:
            self._cancel(request)

    def _cancel(self, request):
        self.posted = [receive for receive in self.posted if receive is not request]
        self.awaiting_ack.pop(getattr(request, "number", None), None)

    def _wait(self, request, doing):
        try:
            self._move_until_done(request, doing)
        except CommError:  # the program may go on without it
            self._cancel(request)
            raise

    def _move_until_done(self, request, doing):
        quiet_since, moved = time.monotonic(), None
        while not request.done:
            self._clear_the_way(request.needs.union(*(receive.needs for receive in self.posted)))
            self._stop_if_hopeless(request, doing)
            now, before = time.monotonic(), moved
            moved = sum(self.streams[peer].moved for peer in request.needs)
            if moved != before:
                quiet_since = now
            elif self.timeout is not None and now - quiet_since > self.timeout:
                raise CommTimeout(f"rank {self.rank} waited {self.timeout:g} s in {doing}")
            self._rest(request)
        if request.error:
            raise request.error

    def _rest(self, request):
        """Let time pass until there is news of `request`, or of anything else."""
        if not hasattr(request, "nap"):
            self._progress(LOOK_UP_S)
            return
        self.inside.release()
        try:
            request.nap()  # what it waits for comes by memory
        finally:
            self.inside.acquire()
        self._progress(0)

    def _progress(self, timeout) -> bool:
        """Move what can be moved, waiting for it up to `timeout` seconds.  Whether any did."""
        if self.listened:
            return self.inside.wait(timeout)
        ready = self._listen(timeout)
        for key, mask in ready:
            if mask & WRITE:
                key.data.flush()
            if mask & READ:
                self._read(key.data)
            self._watch(key.data)
        if self.companions:
            self.inside.notify_all()
        return bool(ready)

    def _listen(self, timeout):
        """What the sockets are ready for; meanwhile other threads may be inside."""
        self.listened = True
        self.inside.release()
        try:
            return self.selector.select(timeout)
        finally:
            self.inside.acquire()
            self.listened = False

    def roll_call(self, group: int, call: int, members, text: str, doing: str) -> list[str]:
        """Tell all `members` something about a call, and hear what they say, in their order."""
        key = (group, call)
        others = [self.streams[m] for m in members if m != self.rank]
        with self.inside:
            self.entered[group] = call
            for stream in others:
                self._tell(stream.peer, Kind.SHARE, text, Envelope(group, call))
            self._wait(Sharing(key, others), doing)
            said = {stream.peer: stream.shared.pop(key) for stream in others} | {self.rank: text}
        return [said[m] for m in members]

    def finish(self):
        """Wait until all that was begun is over and all that was sent accepted or on its way; say
        that this rank returned."""
        for companion in self.companions:
            companion.finish()
        with self.inside:
            self._finish()

    def abort(self):
        """Leave without having returned; peers hear of it when the sockets close."""

    def _finish(self):
        for message in list(self.awaiting_ack.values()):
            self._wait(message, f"send to rank {message.peer} ({message.envelope})")
        for stream in self.remote:
            while stream.filling and not stream.over and self._progress(self.timeout):
                pass
            if not stream.over:
                self._tell(stream.peer, Kind.RETURNED)
        for stream in self.remote:
            while stream.outbox and self._progress(self.timeout):
                pass

    def _stop_if_hopeless(self, request, doing):
        if request.error:
            raise request.error
        if self.trouble:
            sentence, self.trouble = self.trouble, None
            raise CommMismatch(sentence)
        needs = request.needs - {self.rank}
        over = {peer for peer in needs if self.streams[peer].over}
        newly_lost = {peer for peer in over if self.streams[peer].lost} - self.mourned
        if over and (newly_lost or not request.any_of or over == needs):
            self.mourned |= newly_lost
            raise PeerLost(self._absent(newly_lost or over, doing), newly_lost or over)
        if self.checked and request in self.posted and not request.envelope.call:
            self._stop_if_elsewhere(needs, doing)

    def _absent(self, peers, doing):
        lost = any(self.streams[peer].lost for peer in peers)
        many, verb = len(peers) > 1, ("was", "were") if lost else ("has", "have")
        end = "lost" if lost else f"returned from {'their functions' if many else 'its function'}"
        return f"{listed(peers)} {verb[many]} {end} while rank {self.rank} was in {doing}"

    def _stop_if_elsewhere(self, needs, doing):
        """Whoever waits in a collective for this rank will not send it what it waits for."""
        calls = {}
        for stream in self.remote:
            for (group, call), text in stream.shared.items():
                if in_background(group):  # its rank may still send
                    continue
                if call > self.entered.get(group, 0):
                    calls[stream.peer] = text.partition("\n")[0]
        if needs and needs <= calls.keys():
            sentence = differing({self.rank: str(doing)} | calls)
            for peer in calls:
                self._tell(peer, Kind.REFUSED, sentence)
            raise CommMismatch(sentence)
