"""What an algorithm holds in its hand: communicators, errors, traces.  Knows no world."""

from course.comm.communicator import ANY, LAST_TAG, Communicator
from course.comm.errors import CommError, CommMismatch, CommTimeout, PeerLost
from course.comm.trace import Trace

__all__ = [
    "ANY", "LAST_TAG", "CommError", "CommMismatch", "CommTimeout", "Communicator", "PeerLost",
    "Trace",
]  # fmt: skip
