"""What travels between two ranks, and what a rank can wait for."""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from course.comm.transport import Envelope

POLL_S = 0.2  # how often a waiting rank looks up from its sockets
HEADER = struct.Struct("<BBIQiiBQ")  # kind, flags, number, and the fields of an envelope
SYNCHRONOUS, VIA_SHM = 1, 2  # the flags
BLANK = Envelope()


class Kind(IntEnum):
    """Of a frame.  Only DATA carries a payload of the program; a text follows some of the others.

    `number` is that of a message by its sender's count, of SHM_DATA and SHM_CREDIT a length.
    """

    DATA = 0
    ACK = 1  # the receiver has a place for message `number`
    NACK = 2  # it has not: the text says why, if not because it is in a roll call
    PROBE = 3  # the sender waits for message `number` while its receiver is in a roll call
    ROLL_CALL = 4  # what a rank says of a collective call
    REVOKE = 5  # a rank has left a collective call: the text says why
    SHM_DATA = 6  # `number` bytes more are in the ring
    SHM_CREDIT = 7  # `number` bytes of the ring are free again
    FIN = 8  # the rank's function has returned: nothing more will come
    AGREEMENT = 9  # a rank and the 2**`number` - 1 before it say this text of a collective call


class Frame:
    """A header and what follows it, on their way out: `parts` are what is left of them."""

    def __init__(self, kind, number, envelope, view, flags=0):
        head = memoryview(HEADER.pack(kind, flags, number, *envelope))
        self.parts = [head, view] if len(view) and not flags & VIA_SHM else [head]

    def advance(self, count: int) -> bool:
        """So many bytes have left.  Whether all have."""
        while self.parts and count >= len(self.parts[0]):
            count -= len(self.parts.pop(0))
        if self.parts and count:
            self.parts[0] = self.parts[0][count:]
        return not self.parts


class Request:
    """What can be waited for: it is `done`, or has an `error`, or `needs` these ranks (one of them
    if `any_of`)."""

    any_of, number, envelope = False, 0, BLANK
    source: int | None = None
    unload: Callable | None = None

    def block(self, progress):
        """Let time pass until there may be news."""
        progress.poll(POLL_S)

    def late(self):
        """It is not done after POLL_S, and again."""

    def gone(self, ended: set, lost: set) -> set:
        """Which of `ended`, ranks that it needs, can do no more for it; `lost` are some of them."""
        return ended


class Send(Request, Frame):
    """A message on its way out: done when the kernel or the ring has all of it and, where that was
    asked for, the receiver has accepted it."""

    def __init__(self, peer, envelope, number, view, flags):
        Frame.__init__(self, Kind.DATA, number, envelope, view, flags)
        self.needs, self.envelope, self.number = {peer}, envelope, number
        self.payload = view if flags & VIA_SHM else b""  # what the ring has not taken yet
        self.accepted = not flags & SYNCHRONOUS
        self.error, self.probed, self.unwanted = None, False, False

    @property
    def done(self) -> bool:
        return self.accepted and not self.parts and not self.payload


class Receive(Request):
    """A place [bytes] for the next fitting message from one of `needs`."""

    def __init__(self, sources, envelope, view):
        self.needs, self.envelope, self.view = sources, envelope, view
        self.any_of, self.done, self.error = len(sources) > 1, False, None


class IncomingMessage:
    """A message on its way in: `got` bytes of it are in `buffer`.  None: it is not read yet."""

    receive: Any
    buffer: Any

    def __init__(self, source, kind, number, envelope, flags=0):
        self.source, self.kind, self.number, self.envelope = source, kind, number, envelope
        self.flags, self.receive, self.buffer, self.got = flags, None, None, 0

    @property
    def complete(self) -> bool:
        return self.got == self.envelope.nbytes

    def matches(self, receive) -> bool:
        """Whether it is for this receive: by source, group, call and tag."""
        mine, theirs = self.envelope, receive.envelope
        return mine[2] == theirs[2] and mine[:2] == theirs[:2] and self.source in receive.needs

    def set_aside(self):
        """Give it a buffer of its own if it has none."""
        if self.buffer is None:
            self.buffer = memoryview(bytearray(self.envelope.nbytes))

    def deliver(self):
        """Give a complete message to its receive."""
        if self.buffer is not self.receive.view:
            self.receive.view[:] = self.buffer
        self.receive.source, self.receive.done = self.source, True
