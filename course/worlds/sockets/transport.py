"""One rank's way to the others over streams: what its communicator asks for."""

import time
from collections import Counter
from typing import Any

import torch

from course.comm.tensors import as_bytes, host, lands_directly
from course.comm.trace import Meter
from course.comm.transport import BACKGROUND, Envelope, group_id, in_background
from course.worlds.sockets.background_thread import BackgroundThread, SwitchInterval
from course.worlds.sockets.matching import Matcher
from course.worlds.sockets.messages import IncomingMessage, Kind, Receive, Request, Send
from course.worlds.sockets.polling import Poller
from course.worlds.sockets.progress import Progress
from course.worlds.sockets.receiving import Receiver
from course.worlds.sockets.roll_calls import RollCalls
from course.worlds.sockets.sending import Sender

IN_BACKGROUND_OF_ALL = group_id((BACKGROUND,))


class SocketTransport:
    """Tensors of this rank's `device` over `streams` (by peer), of which `poller` knows the news.

    What a world adds: `native(comm)` has a backend's own collectives on the ranks of `comm`,
    `windows` are the memory of its node for the rank's own calls and for those in the background.
    """

    clock = staticmethod(time.perf_counter)
    native: Any
    windows: Any

    def __init__(self, rank, streams, poller: Poller, *, device, timeout, checked, traced=False):
        self.rank, self.device, self.checked = rank, torch.device(device), checked
        self.meter, self.trace = Meter(), [] if traced else None
        self.sender, matcher = Sender(streams, poller), Matcher()
        self.receiver = Receiver(rank, self.sender, poller, matcher, RollCalls(rank, self.sender))
        self.progress = Progress(rank, self.receiver, poller, timeout=timeout, checked=checked)
        self.windows = None, None
        self.threads, self.interval = [], SwitchInterval()
        for stream in streams.values():
            stream.socket.setblocking(False)
            poller.update(stream)

    @property
    def last_call(self) -> Counter:
        """By group, the last call that this rank has taken part in, or answered otherwise."""
        return self.receiver.roll_calls.last_call

    def send_tensor(self, peer, envelope, x, synchronous) -> Request:
        """Post the elements of `x`, whatever its strides and device."""
        if x.is_meta:
            raise self._without_memory()
        view = as_bytes(host(x))
        with self.progress.lock:
            if peer == self.rank:
                return self._send_to_self(envelope, view)
            return self.sender.send(peer, envelope, view, synchronous)

    def receive_tensor(self, peers, envelope, out) -> Request:
        """Post a place for the elements of `out`: its own memory where that is in one piece."""
        if out.is_meta:
            raise self._without_memory()
        direct = lands_directly(out)
        landing = out.detach() if direct else torch.empty(out.shape, dtype=out.dtype)
        receive = Receive(peers, envelope, as_bytes(landing.reshape(-1)))
        receive.unload = None if direct else lambda: out.detach().copy_(landing)
        with self.progress.lock:
            message = self.receiver.matcher.post(receive)
            if message is not None:
                self.receiver.bind(message, receive)
                if not message.complete and message.source != self.rank:
                    self.receiver.resume(self.sender.streams[message.source])
        return receive

    def wait(self, request, operation):
        """Block until `request` is done.  Raises CommTimeout, PeerLost, CommMismatch."""
        if not request.done:
            with self.progress.lock:
                self.progress.wait(request, operation)

    def cancel(self, request):
        """Expect no more of `request`; a message that is under way is not stopped."""
        with self.progress.lock:
            self.progress.cancel(request)

    def roll_call(self, group, call, members, text, operation) -> list[str]:
        """Tell all `members` something about a call, and hear what they say, in their order."""
        with self.progress.lock:
            roll_calls = self.receiver.roll_calls
            roll_call = roll_calls.open((group, call), text, members)
            try:
                self.progress.wait(roll_call, operation)
            finally:
                said = roll_calls.close(roll_call) | {self.rank: text}
        return [said[member] for member in members]

    def revoke(self, group, call, members, sentence):
        """Let whoever waits within this call, now or later, raise CommMismatch(sentence)."""
        with self.progress.lock:
            if (group, call) in self.receiver.revoked:
                return
            self.receiver.revoke((group, call), sentence)
            for peer in members:
                if peer != self.rank:
                    self.sender.tell(peer, Kind.REVOKE, sentence, Envelope(group, call))

    def background(self, group) -> BackgroundThread:
        """A thread for what a group's ranks do in the background."""
        self.progress.threads += 1
        self.threads.append(BackgroundThread(self, self.interval))
        return self.threads[-1]

    def node_memory(self, group):
        """The memory of its node that is for this group, if there is such a thing."""
        if not in_background(group):
            return self.windows[0]
        return self.windows[1] if group == IN_BACKGROUND_OF_ALL else None

    def finish(self):
        """Wait until all that was begun is over and all that was sent accepted or on its way; say
        that this rank returned."""
        for thread in self.threads:
            thread.finish()
        with self.progress.lock:
            for message in list(self.sender.awaiting_ack.values()):
                what = f"send to rank {min(message.needs)} ({message.envelope})"
                self.progress.wait(message, what)
            self._flush(lambda stream: stream.rings and stream.rings.sends and not stream.ended)
            self.receiver.roll_calls.leave()
            for stream in self.sender.streams.values():
                if not stream.ended:
                    self.sender.tell(stream.peer, Kind.FIN)
            self._flush(lambda stream: stream.outbox)

    def abort(self):
        """Leave without having returned."""
        with self.progress.lock:
            self.progress.poller.abort()

    def _flush(self, busy):
        for stream in self.sender.streams.values():
            while busy(stream) and self.progress.poll(self.progress.timeout):
                pass

    def _send_to_self(self, envelope, view) -> Send:
        """A message to oneself is always set aside: it is done before its receive is posted."""
        message = IncomingMessage(self.rank, Kind.DATA, 0, envelope)
        message.buffer, message.got = memoryview(bytes(view)), len(view)
        self.receiver.arrive(message)
        sent = Send(self.rank, envelope, 0, view, 0)
        sent.parts = []
        return sent

    def _without_memory(self):
        return ValueError(f"rank {self.rank}: a tensor on the meta device has no memory")
