"""Two ranks in one process, for tests of the parts of a transport."""

import socket

from course.worlds.sockets.polling import SocketPoller
from course.worlds.sockets.stream import Stream
from course.worlds.sockets.transport import SocketTransport


class Pair:
    """The transports of ranks 0 and 1, over a pair of sockets that closes at the end."""

    def __init__(self, timeout=5.0, checked=True):
        self.settings = {"device": "cpu", "timeout": timeout, "checked": checked}

    def __enter__(self):
        self.ends = socket.socketpair()
        return [
            SocketTransport(
                rank, {1 - rank: Stream(1 - rank, end)}, SocketPoller(), **self.settings
            )
            for rank, end in enumerate(self.ends)
        ]

    def __exit__(self, *_):
        for end in self.ends:
            end.close()
