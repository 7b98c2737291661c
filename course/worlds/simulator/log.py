"""What happened on an imagined cluster, in numbers: a row for every message that came, and one for
every wait of a rank.  Millions of them fill no more memory than they must."""

import struct

import numpy

MESSAGE = numpy.dtype([("src", "i4"), ("dst", "i4"), ("bottleneck", "i4"), ("bytes", "i8"),
                       ("sent", "f8"), ("began", "f8"), ("came", "f8")])  # fmt: skip
WAIT = numpy.dtype([("start", "f8"), ("end", "f8"), ("cause", "i4")])
pack_message, pack_wait = struct.Struct("=iiiqddd").pack, struct.Struct("=ddi").pack

NOTHING = -1  # the cause of waiting in vain
NO_FLOW = -1.0  # `began` of a message without bytes, or to oneself
DST = struct.Struct("=i")


def encode_cause(context: int) -> int:
    """The cause of a wait for another context; a cause ≥ 0 is the number of a message."""
    return -2 - context


def decode_cause(cause: int) -> int:
    """The context that was waited for."""
    return -2 - cause


class MessageLog:
    """The rows of one run; `src` and `dst` are the numbers of contexts."""

    def __init__(self):
        self.rows, self.count = bytearray(), 0

    def add(self, message) -> int:
        """Write down a message that has come; its number."""
        self.rows += pack_message(
            message.src.context.index, message.key[0], message.bottleneck.number,
            message.envelope[4], message.sent, message.began, message.came,
        )  # fmt: skip
        self.count = count = self.count + 1
        return count - 1

    def readdress(self, number, context):
        """Message `number` was received by another context of the rank that it was sent to."""
        DST.pack_into(self.rows, number * MESSAGE.itemsize + DST.size, context)

    @property
    def messages(self):
        return numpy.frombuffer(self.rows, MESSAGE)
