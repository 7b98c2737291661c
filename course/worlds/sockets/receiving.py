"""What arrives at a rank: a message is compared with its receive before a byte of it lands there.

A message that nobody has asked for is left where it is, in the socket or in the shared-memory ring
(they hold a little of it, then its sender blocks), unless it is short or stands before something
that this rank waits for: then it is set aside.
"""

from course.comm.errors import CommMismatch, misfit
from course.comm.transport import Envelope
from course.worlds.sockets.messages import SYNCHRONOUS, VIA_SHM, IncomingMessage, Kind

# Up to this a message that nobody has asked for is set aside at once.  (Whether it goes by shared
# memory is another matter: SHM_FROM_BYTES of sending.py.)
SHORT_BYTES = 64 * 1024


class Receiver:
    """Takes in what a rank's streams hold, as far as it has a place."""

    def __init__(self, rank: int, sender, poller, matcher, roll_calls):
        self.rank, self.sender, self.poller = rank, sender, poller
        self.matcher, self.roll_calls = matcher, roll_calls
        self.held, self.ended = set(), set()  # streams with a payload left there; ranks
        self.revoked, self.pending_error = {}, None
        self.acts = {
            Kind.ACK: self._on_ack, Kind.NACK: self._on_nack, Kind.PROBE: self._on_probe,
            Kind.ROLL_CALL: self._on_roll_call, Kind.REVOKE: self._on_revoke,
            Kind.SHM_DATA: self._on_shm_data, Kind.SHM_CREDIT: self._on_shm_credit,
            Kind.FIN: self._on_fin, Kind.AGREEMENT: self._on_agreement,
        }  # fmt: skip

    def read(self, stream):
        """Take in what a stream holds."""
        stream.drained = False
        while True:
            message = stream.incoming
            if message is None:
                header = stream.next_header()
                if header is None:
                    break
                self._on_header(stream, header)
            elif message.buffer is None:
                break
            elif message.got == message.envelope.nbytes:
                stream.incoming = None
                self._on_complete(stream, message)
            else:
                message.got += stream.take(message.buffer[message.got :])
                if stream.drained and message.got < message.envelope.nbytes:
                    break
        self._hold(stream)
        if stream.lost:
            self.ended.add(stream.peer)

    def bind(self, message, receive):
        """Bind a message to its receive, if their dtypes and lengths agree."""
        if message.envelope != receive.envelope:
            return self._refuse(message, receive)
        message.receive = receive
        if message.buffer is None:
            message.buffer = receive.view
        if message.flags & SYNCHRONOUS:
            self.sender.tell(message.source, Kind.ACK, number=message.number)
        if message.complete:
            message.deliver()

    def resume(self, stream):
        """Go on with a stream in which a message has found its place."""
        if stream in self.held and not stream.paused:
            self.read(stream)
        if stream.rings is not None:
            self._empty_ring(stream)

    def unblock(self, awaited):
        """Set aside what nobody has asked for where it stands before what is awaited."""
        for stream in list(self.held):
            if stream.paused and stream.peer in awaited:
                stream.incoming.set_aside()
                self.resume(stream)
            while stream.rings is not None and stream.rings.head_of_line_blocked:
                stream.rings.receives[0].set_aside()
                self._empty_ring(stream)

    def revoke(self, key, sentence):
        """Whoever waits within the call `key`, (group, call), is to hear this."""
        self.revoked[key] = sentence
        for message in self.matcher.revoke(key):
            self._discard(message)

    def arrive(self, message):
        """Find the receive that a message is for, or keep it until one is posted; what belongs to a
        revoked call is read for nobody, so that what is behind it can be read."""
        if self.revoked and message.envelope[:2] in self.revoked:
            return message.set_aside()
        receive = self.matcher.match(message)
        if receive is not None:
            self.bind(message, receive)
        elif message.envelope.nbytes <= SHORT_BYTES:
            message.set_aside()
        return None

    def _on_header(self, stream, header):
        kind, flags, number = header[:3]
        envelope = tuple.__new__(Envelope, header[3:])  # at half the cost of Envelope(*...)
        if kind != Kind.DATA and not envelope.nbytes:
            return self.acts[kind](stream, number, envelope, "")
        message = IncomingMessage(stream.peer, kind, number, envelope, flags)
        if flags & VIA_SHM:
            stream.rings.receives.append(message)
        else:
            stream.incoming = message
        return self.arrive(message) if kind == Kind.DATA else message.set_aside()

    def _on_complete(self, stream, message):
        if message.kind != Kind.DATA:
            text = bytes(message.buffer).decode()
            self.acts[message.kind](stream, message.number, message.envelope, text)
        elif message.receive is not None:
            message.deliver()

    def _refuse(self, message, receive):
        """A message that does not fit is read for nobody, and both its ends are told why."""
        peer = message.source
        sentence = misfit(self.rank, receive.envelope, peer, message.envelope)
        receive.error = CommMismatch(sentence)
        message.set_aside()
        if peer != self.rank and not message.envelope.call:  # else this rank will revoke the call
            self.sender.tell(peer, Kind.NACK, sentence, number=message.number)

    def _discard(self, message):
        message.set_aside()
        if message.source != self.rank:
            self.resume(self.sender.streams[message.source])

    def _empty_ring(self, stream):
        """Take out of the ring what its messages have a place for."""
        rings, taken = stream.rings, 0
        while rings.receives and rings.into.available and rings.receives[0].buffer is not None:
            message = rings.receives[0]
            count = rings.into.read(message.buffer[message.got :])
            message.got += count
            taken += count
            if message.complete:
                rings.receives.popleft()
                self._on_complete(stream, message)
        if taken:
            stream.moved += taken
            self.sender.tell(stream.peer, Kind.SHM_CREDIT, number=taken)
        self._hold(stream)

    def _hold(self, stream):
        """Remember whether something is left in a stream or its ring."""
        waiting = stream.rings.receives if stream.rings else ()
        if stream.paused or (waiting and waiting[0].buffer is None):
            self.held.add(stream)
        elif self.held:
            self.held.discard(stream)
        self.poller.update(stream)

    # Frames that are not of the program: (stream, number, envelope, text)

    def _on_ack(self, _, number, *__):
        message = self.sender.awaiting_ack.pop(number, None)
        if message is not None:  # else its sender has given up
            message.accepted = True

    def _on_nack(self, _, number, __, text):
        message = self.sender.awaiting_ack.pop(number, None)
        if message is None:
            self.pending_error = text or self.pending_error
        elif text:
            message.error = CommMismatch(text)
        else:
            message.unwanted = True

    def _on_probe(self, stream, number, *_):
        message = self.matcher.withdraw(stream.peer, number)
        if message is not None:
            self.sender.tell(stream.peer, Kind.NACK, number=number)
            self._discard(message)

    def _on_roll_call(self, stream, rounds, envelope, text):
        self.roll_calls.hear(stream.peer, envelope[:2], text, rounds)

    def _on_agreement(self, _, number, envelope, text):
        self.roll_calls.hear_agreement(envelope[:2], number, text)

    def _on_revoke(self, _, __, envelope, text):
        self.revoke(envelope[:2], text)

    def _on_shm_data(self, stream, number, *_):
        stream.rings.into.available += number
        self._empty_ring(stream)

    def _on_shm_credit(self, stream, number, *_):
        stream.rings.out.available += number
        self.sender.fill_ring(stream)

    def _on_fin(self, stream, *_):
        stream.returned = True
        self.ended.add(stream.peer)
