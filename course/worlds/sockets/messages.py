"""What a rank can wait for: a message on its way out, a place for one, what all ranks say."""

from enum import IntEnum

from course.worlds.sockets.stream import Frame

SHORT_BYTES = 64 * 1024
LANE_FROM_BYTES = 128 * 1024


class Kind(IntEnum):
    """Of a frame.  Only DATA carries a payload of the program."""

    DATA = 0
    ACCEPTED = 1  # the receiver has a place for message `number`
    REFUSED = 2  # it has not: the text says why (number 0: the sender of this frame gives up)
    SHARE = 3  # what a rank says of a collective call
    RETURNED = 4  # the rank's function has returned: nothing more will come
    FILLED = 5  # `number` bytes more are in the lane
    EMPTIED = 6  # `number` bytes of the lane are free again


class Send(Frame):
    """A message on its way out: done when the kernel has all of it and, where that was asked for,
    the receiver has accepted it."""

    any_of = False

    def __init__(self, peer, envelope, number, view, synchronous, kind=Kind.DATA, by_lane=False):
        super().__init__(kind, envelope, number, view, synchronous, by_lane)
        self.peer, self.envelope, self.number, self.payload = peer, envelope, number, view
        self.accepted, self.error, self.needs = not synchronous, None, {peer}

    @property
    def done(self) -> bool:
        return self.left == 0 and self.accepted


class Receive:
    """A place [bytes] for the next fitting message from one of `needs`."""

    def __init__(self, sources, envelope, view):
        self.needs, self.envelope, self.view = set(sources), envelope, view
        self.any_of = len(self.needs) > 1
        self.source, self.done, self.error = None, False, None
        self.unload = None  # moves what has landed to where it was wanted


class Sharing:
    """What all ranks of a group say of one call: done when everyone has spoken."""

    any_of, error = False, None

    def __init__(self, key, streams):
        self.key, self.streams = key, streams

    @property
    def needs(self) -> set:
        return {s.peer for s in self.streams if self.key not in s.shared}

    @property
    def done(self) -> bool:
        return all(self.key in s.shared for s in self.streams)


class Arrival:
    """A message on its way in.  While `view` is None it is left in the stream."""

    def __init__(self, stream, kind, envelope, number=0, synchronous=False):
        self.stream, self.kind, self.envelope = stream, kind, envelope
        self.number, self.synchronous = number, synchronous
        self.receive, self.view, self.got = None, None, 0

    @property
    def complete(self) -> bool:
        return self.got == self.envelope.nbytes

    def is_for(self, receive) -> bool:
        return self.stream.peer in receive.needs and self.envelope[:3] == receive.envelope[:3]

    def set_aside(self):
        if self.view is None:
            self.view = memoryview(bytearray(self.envelope.nbytes))

    def land(self):
        """Give a complete message to the receive that claimed it."""
        if self.view is not self.receive.view:
            self.receive.view[:] = self.view
        self.receive.source, self.receive.done = self.stream.peer, True
