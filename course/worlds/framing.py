"""Objects over a stream socket: pickled, their lengths in front.

send(socket, thing)          blocks until it is on its way
receive(socket)              the next object, None at the end
Inbox(socket).read()         the objects that are there, without waiting for the rest of one

A `pickle.PickleBuffer` inside an object goes from its memory to the socket and from there into
memory of its own: large calls and results are copied by the kernel alone.
"""

import pickle
import socket
import struct

HEAD = struct.Struct("<I")  # how many lengths follow: of the pickle, of each buffer beside it
LENGTH = struct.Struct("<Q")


def send(sock, thing):
    """Send an object."""
    buffers = []
    body = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(body), *(buffer.raw() for buffer in buffers)]
    sock.sendall(HEAD.pack(len(parts)) + b"".join(LENGTH.pack(len(part)) for part in parts))
    for part in parts:
        sock.sendall(part)


def receive(sock):
    """The next object; None at the end."""
    inbox = Inbox(sock)
    while not inbox.ended:
        for thing in inbox.read(0):
            return thing
    return None


class Inbox:
    """The objects that come down a socket; `ended` once no more can come."""

    def __init__(self, sock):
        self.sock, self.ended, self.done = sock, False, []
        self.steps = self._steps()
        self.missing = next(self.steps)

    def read(self, flags=socket.MSG_DONTWAIT) -> list:
        """The next object, in a list, if it is complete; with `flags` 0 its rest is waited for."""
        while not (self.ended or self.done):
            try:
                count = self.sock.recv_into(self.missing, 0, flags)
            except BlockingIOError:
                break
            except OSError:  # it was reset, or the other machine is gone, or is silent for too long
                count = 0
            self.ended = not count
            self.missing = self.missing[count:]
            while not self.missing:
                self.missing = next(self.steps)
        done, self.done = self.done, []
        return done

    def _steps(self):
        """The memory that is to be filled next; objects that are complete are `done`."""
        while True:
            head = bytearray(HEAD.size)
            yield memoryview(head)
            lengths = bytearray(HEAD.unpack(head)[0] * LENGTH.size)
            yield memoryview(lengths)
            parts = [bytearray(length) for (length,) in LENGTH.iter_unpack(lengths)]
            for part in parts:
                yield memoryview(part)
            self.done.append(pickle.loads(parts[0], buffers=parts[1:]))
