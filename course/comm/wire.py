"""Messages between processes: post a send, post a receive, wait.

Every message opens with a header that says what it is, so it is compared with what its receiver
expects before a byte of it is taken, at no extra cost.  Nothing moves behind the program's back:
a rank moves its messages, in both directions, whenever it waits for one.

A message that nobody has asked for is left in the stream (the kernel holds a little of it, then
its sender blocks), unless it is short or stands before something this rank waits for: then it is
set aside.  A stream tells at once when the process at its other end is gone.
"""

import selectors
import time

from course.comm.errors import CommMismatch, CommTimeout, PeerLost, differing, listed
from course.comm.messages import (
    LANE_FROM_BYTES,
    SHORT_BYTES,
    Arrival,
    Envelope,
    Kind,
    Receive,
    Send,
    Sharing,
)
from course.comm.stream import Stream

BLANK = Envelope()
LOOK_UP_S = 0.2  # how often a waiting rank looks up from its sockets
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Wire:
    """All streams of one rank, and what is posted on them.

    `sockets`: peer -> connected socket; `lanes`: peer -> (lane to it, lane from it).
    """

    def __init__(self, rank: int, sockets: dict, *, lanes=None, timeout=20.0, checked=True):
        self.rank, self.timeout, self.checked = rank, timeout, checked
        lanes = lanes or {}
        self.streams = {p: Stream(p, s, lanes.get(p, (None, None))) for p, s in sockets.items()}
        self.streams[rank] = Stream(rank)
        self.posted, self.unconfirmed, self.number = [], {}, 0
        self.mourned, self.entered = set(), {}
        self.trouble = None
        self.selector, self.masks = selectors.DefaultSelector(), {}
        for stream in self.remote:
            stream.socket.setblocking(False)
            self._watch(stream)

    @property
    def remote(self) -> list:
        return [stream for stream in self.streams.values() if stream.socket]

    # Posting

    def send(self, peer: int, envelope: Envelope, view, *, confirm=False, kind=Kind.DATA) -> Send:
        """Post `view` [bytes] to `peer`; `confirm` asks for the receiver's acceptance."""
        self.number, stream = self.number + 1, self.streams[peer]
        by_lane = stream.lane_out is not None and len(view) >= LANE_FROM_BYTES
        confirm = confirm and peer != self.rank
        message = Send(peer, envelope, self.number, view, confirm, kind, by_lane)
        if confirm:
            self.unconfirmed[self.number] = message
        if peer == self.rank:
            self._send_to_self(message, view)
        else:
            self._post(message)
        if by_lane:
            stream.filling.append(message)
            self._fill_lane(stream)
        return message

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

    def share(self, group: int, call: int, members, text: str, doing: str) -> list[str]:
        """Tell all `members` something about a call, and hear what they say, in their order."""
        key = (group, call)
        self.entered[group] = call
        others = [self.streams[m] for m in members if m != self.rank]
        for stream in others:
            self._tell(stream.peer, Kind.SHARE, text, Envelope(group, call))
        self.wait(Sharing(key, others), doing)
        said = {stream.peer: stream.shared.pop(key) for stream in others} | {self.rank: text}
        return [said[m] for m in members]

    def finish(self):
        """Wait until all that was sent is on its way and accepted; say that this rank returned."""
        for message in list(self.unconfirmed.values()):
            self.wait(message, f"send to rank {message.peer} ({message.envelope})")
        farewells = [self.send(s.peer, BLANK, memoryview(b""), kind=Kind.RETURNED)
                     for s in self.remote if not s.over]  # fmt: skip
        for farewell in farewells:
            while farewell in self.streams[farewell.peer].outbox and self.progress(self.timeout):
                pass

    def _post(self, message):
        stream = self.streams[message.peer]
        stream.outbox.append(message)
        if len(stream.outbox) == 1:
            stream.flush()
        self._watch(stream)

    def _tell(self, peer, kind, text="", envelope=BLANK, number=0):
        view = memoryview(text.encode())
        self._post(Send(peer, envelope, number, view, False, kind))

    def _fill_lane(self, stream):
        """Put into the lane what it has room for, block by block."""
        while stream.filling and stream.lane_out.ready:
            message = stream.filling[0]
            count = stream.lane_out.fill(message.payload)
            message.payload = message.payload[count:]
            message.left -= count
            stream.moved += count
            if not message.payload:
                stream.filling.popleft()
            self._tell(stream.peer, Kind.FILLED, number=count)

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

    def _send_to_self(self, message, view):
        """A message to oneself is always set aside: it is done before its receive is posted."""
        arrival = Arrival(self.streams[self.rank], Kind.DATA, message.envelope)
        arrival.view, arrival.got = memoryview(bytes(view)), len(view)
        message.left = 0
        self._place(arrival)

    # Waiting

    def wait(self, request, doing: str):
        """Block until `request` is done.

        Raises CommTimeout when nothing moved for `timeout` seconds, PeerLost when it can never be
        done, CommMismatch when the ranks do not do the same thing.
        """
        quiet_since, moved = time.monotonic(), None
        while not request.done:
            self._clear_the_way(request.needs)
            self._stop_if_hopeless(request, doing)
            now, before = time.monotonic(), moved
            moved = sum(self.streams[peer].moved for peer in request.needs)
            if moved != before:
                quiet_since = now
            elif self.timeout is not None and now - quiet_since > self.timeout:
                raise CommTimeout(f"rank {self.rank} waited {self.timeout:g} s in {doing}")
            self.progress(LOOK_UP_S)
        if request.error:
            raise request.error

    def progress(self, timeout) -> bool:
        """Move what can be moved, waiting for it up to `timeout` seconds.  Whether any did."""
        ready = self.selector.select(timeout)
        for key, mask in ready:
            if mask & WRITE:
                key.data.flush()
            if mask & READ:
                self._read(key.data)
            self._watch(key.data)
        return bool(ready)

    def _clear_the_way(self, peers):
        """Set aside what nobody has asked for where it keeps what is awaited from coming."""
        for stream in (self.streams[peer] for peer in peers):
            if stream.arriving and stream.arriving.view is None:
                stream.arriving.set_aside()
                self._watch(stream)
            in_the_way = stream.by_lane and stream.by_lane[0].view is None
            if in_the_way and any(arrival.receive for arrival in stream.by_lane):
                stream.by_lane[0].set_aside()
                self._empty_lane(stream)

    def _stop_if_hopeless(self, request, doing):
        if request.error:
            raise request.error
        if self.trouble:
            sentence, self.trouble = self.trouble, None
            raise CommMismatch(sentence)
        over = {peer for peer in request.needs if self.streams[peer].over}
        newly_lost = {peer for peer in over if self.streams[peer].lost} - self.mourned
        if over and (newly_lost or not request.any_of or over == request.needs):
            self.mourned |= newly_lost
            raise PeerLost(self._absent(newly_lost or over, doing))
        if self.checked and isinstance(request, Receive) and not request.envelope.call:
            self._stop_if_elsewhere(request, doing)

    def _absent(self, peers, doing):
        lost = any(self.streams[peer].lost for peer in peers)
        verb = "was lost" if lost else "has returned from its function"
        verb = verb if len(peers) == 1 else verb.replace("was", "were").replace("has", "have")
        return f"{listed(peers)} {verb} while rank {self.rank} was in {doing}"

    def _stop_if_elsewhere(self, request, doing):
        """Whoever waits in a collective for this rank will not send it what it waits for."""
        calls = {}
        for stream in self.remote:
            for (group, call), text in stream.shared.items():
                if call > self.entered.get(group, 0):
                    calls[stream.peer] = text.partition("\n")[0]
        if request.needs <= calls.keys():
            sentence = differing({self.rank: doing} | calls)
            for peer in calls:
                self._tell(peer, Kind.REFUSED, sentence)
            raise CommMismatch(sentence)

    def _watch(self, stream):
        """Ask the kernel for exactly the news of this stream that can be acted upon."""
        left_there = stream.arriving is not None and stream.arriving.view is None
        mask = (0 if stream.lost or left_there else READ) | (WRITE if stream.outbox else 0)
        before, self.masks[stream.peer] = self.masks.get(stream.peer, 0), mask
        if mask and before and mask != before:
            self.selector.modify(stream.socket, mask, stream)
        elif mask and not before:
            self.selector.register(stream.socket, mask, stream)
        elif before and not mask:
            self.selector.unregister(stream.socket)

    # Arriving

    def _read(self, stream):
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
                count = stream.fill(arrival.view[arrival.got :])
                if not count:
                    return
                arrival.got += count

    def _open(self, stream, kind, dtype, confirm, by_lane, tag, call, group, number, nbytes):
        """Act on a header."""
        if kind == Kind.RETURNED:
            stream.returned = True
        elif kind == Kind.ACCEPTED:
            self.unconfirmed.pop(number).confirmed = True
        elif kind == Kind.EMPTIED:
            stream.lane_out.ready += number
            self._fill_lane(stream)
        elif kind == Kind.FILLED:
            stream.lane_in.ready += number
            self._empty_lane(stream)
        else:
            envelope = Envelope(group, call, tag, dtype, nbytes)
            arrival = Arrival(stream, kind, envelope, number, confirm, by_lane)
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
        if arrival.confirm:
            self._tell(arrival.stream.peer, Kind.ACCEPTED, number=arrival.number)
        if arrival.complete:
            arrival.land()
        self._go_on(arrival.stream)

    def _refuse(self, arrival, receive):
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
        if stream.by_lane:
            self._empty_lane(stream)
        if stream.socket:
            self._watch(stream)

    def _close(self, arrival):
        """Act on a message that has arrived in full."""
        text = "" if arrival.kind == Kind.DATA else bytes(arrival.view).decode()
        if arrival.kind == Kind.SHARE:
            arrival.stream.shared[arrival.envelope[:2]] = text
        elif arrival.kind == Kind.REFUSED and arrival.number in self.unconfirmed:
            self.unconfirmed.pop(arrival.number).error = CommMismatch(text)
        elif arrival.kind == Kind.REFUSED:
            self.trouble = text
        elif arrival.receive:
            arrival.land()
