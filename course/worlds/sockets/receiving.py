"""What arrives at a rank: each message is compared with its receive before a byte of it is taken.

A message that nobody has asked for is left in the stream (the kernel holds a little of it, then
its sender blocks), unless it is short or stands before something this rank waits for: then it is
set aside.
"""

from course.comm.errors import CommMismatch, differing
from course.comm.transport import Envelope
from course.worlds.sockets.messages import SHORT_BYTES, Arrival, Kind, Receive
from course.worlds.sockets.sending import Outgoing


class Incoming(Outgoing):
    """The receives that a rank has posted, and what arrives for them."""

    def __init__(self, rank: int, sockets: dict, lanes: dict):
        super().__init__(rank, sockets, lanes)
        self.posted, self.trouble = [], None

    def receive(self, sources, envelope: Envelope, view) -> Receive:
        """Post a place for the next fitting message from one of `sources`."""
        receive = Receive(sources, envelope, view)
        firsts = [self.streams[source].first_for(receive) for source in sources]
        waiting = [arrival for arrival in firsts if arrival]
        if waiting:
            arrival = max(waiting, key=lambda arrival: arrival.complete)
            arrival.stream.arrived.remove(arrival)
            self._claim(arrival, receive)
        else:
            self.posted.append(receive)
        return receive

    def _read(self, stream):
        """Take in what a stream holds, as far as it has a place."""
        while not stream.lost:
            arrival = stream.arriving
            if arrival is None:
                header = stream.next_header()
                if header is None:
                    return
                self._open(stream, *header)
            elif arrival.view is None:
                return
            elif arrival.complete:
                stream.arriving = None
                self._close(arrival)
            else:
                place = arrival.view[arrival.got :]
                count = stream.fill(place)
                arrival.got += count
                if count < len(place):  # that was all there is
                    return

    def _open(self, stream, kind, dtype, synchronous, by_lane, tag, call, number, group, nbytes):
        """Act on a header."""
        if kind == Kind.RETURNED:
            stream.returned = True
        elif kind == Kind.ACCEPTED:
            if number in self.awaiting_ack:  # else its sender has given up
                self.awaiting_ack.pop(number).accepted = True
        elif kind == Kind.EMPTIED:
            stream.lane_out.ready += number
            self._fill_lane(stream)
        elif kind == Kind.FILLED:
            stream.lane_in.ready += number
            self._empty_lane(stream)
        else:
            envelope = Envelope(group, call, tag, dtype, nbytes)
            arrival = Arrival(stream, kind, envelope, number, synchronous)
            if by_lane:
                stream.by_lane.append(arrival)
            else:
                stream.arriving = arrival
            self._place(arrival) if kind == Kind.DATA else arrival.set_aside()

    def _place(self, arrival):
        """Find the receive that this message is for, or keep it until one is posted."""
        for receive in self.posted:
            if arrival.is_for(receive):
                self.posted.remove(receive)
                return self._claim(arrival, receive)
        arrival.stream.arrived.append(arrival)
        if arrival.envelope.nbytes <= SHORT_BYTES:
            arrival.set_aside()

    def _claim(self, arrival, receive):
        """Bind a message to its receive, if their dtypes and lengths agree."""
        if arrival.envelope != receive.envelope:
            return self._refuse(arrival, receive)
        arrival.receive = receive
        if arrival.got == 0:
            arrival.view = receive.view
        if arrival.synchronous:
            self._tell(arrival.stream.peer, Kind.ACCEPTED, number=arrival.number)
        if arrival.complete:
            arrival.land()
        self._go_on(arrival.stream)

    def _refuse(self, arrival, receive):
        """A message that does not fit is thrown away, and both its ends are told why."""
        peer = arrival.stream.peer
        sentence = differing({
            self.rank: f"recv from rank {peer} ({receive.envelope})",
            peer: f"send to rank {self.rank} ({arrival.envelope})",
        })  # fmt: skip
        receive.error = CommMismatch(sentence)
        arrival.set_aside()
        if arrival.stream.socket:
            self._tell(peer, Kind.REFUSED, sentence, number=arrival.number)
        self._go_on(arrival.stream)

    def _go_on(self, stream):
        """An arrival of this stream has found its place: its payload may come."""
        self._empty_lane(stream)
        if stream.socket:
            self._watch(stream)

    def _empty_lane(self, stream):
        """Take out of the lane what its arrivals have a place for."""
        emptied = 0
        while stream.by_lane and stream.lane_in.ready and stream.by_lane[0].view is not None:
            arrival = stream.by_lane[0]
            count = stream.lane_in.empty(arrival.view[arrival.got :])
            arrival.got += count
            emptied += count
            if arrival.complete:
                stream.by_lane.popleft()
                self._close(arrival)
        if emptied:
            stream.moved += emptied
            self._tell(stream.peer, Kind.EMPTIED, number=emptied)

    def _clear_the_way(self, awaited):
        """Set aside what nobody has asked for where it keeps what is awaited from coming."""
        for stream in self.streams.values():
            left_there = stream.arriving and stream.arriving.view is None
            if left_there and stream.peer in awaited:
                stream.arriving.set_aside()
                self._watch(stream)
            while stream.in_the_way:
                stream.by_lane[0].set_aside()
                self._empty_lane(stream)

    def _close(self, arrival):
        """Act on a message that has arrived in full."""
        text = "" if arrival.kind == Kind.DATA else bytes(arrival.view).decode()
        if arrival.kind == Kind.SHARE:
            arrival.stream.shared[arrival.envelope[:2]] = text
        elif arrival.kind == Kind.REFUSED and arrival.number in self.awaiting_ack:
            self.awaiting_ack.pop(arrival.number).error = CommMismatch(text)
        elif arrival.kind == Kind.REFUSED:
            self.trouble = text
        elif arrival.receive:
            arrival.land()
