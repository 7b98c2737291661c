"""What happened on an imagined cluster, in numbers: a row for every message that came, and one for
every wait of a rank.  Millions of them fill no more memory than they must."""

import struct

import numpy

MESSAGE = numpy.dtype([("src", "i4"), ("dst", "i4"), ("bottleneck", "i4"), ("bytes", "i8"),
                       ("sent", "f8"), ("began", "f8"), ("came", "f8")])  # fmt: skip
HOLD = numpy.dtype([("start", "f8"), ("end", "f8"), ("cause", "i4")])
pack_message, pack_hold = struct.Struct("=iiiqddd").pack, struct.Struct("=ddi").pack

NOTHING = -1  # the cause of waiting in vain
DST = struct.Struct("=i")


def cause_of(course: int) -> int:
    """The cause of a wait for another course of events; else it is the number of a message."""
    return -2 - course


course_of = cause_of  # and back again


class Ledger:
    """The rows of one run; the names of `src` and `dst` are the numbers of courses of events."""

    def __init__(self):
        self.rows, self.count = bytearray(), 0

    def note(self, message) -> int:
        """Write down a message that has come; its number."""
        self.rows += pack_message(
            message.src.number, message.dst.number, message.bottleneck.number, message.nbytes,
            message.sent, message.began, message.came,
        )  # fmt: skip
        self.count += 1
        return self.count - 1

    def received(self, message, owner):
        """It was for another course of events of its receiver."""
        DST.pack_into(self.rows, message.cause * MESSAGE.itemsize + DST.size, owner.number)

    @property
    def messages(self):
        return numpy.frombuffer(self.rows, MESSAGE)
