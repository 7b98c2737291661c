"""Programs that a launcher finds by their name: `module:function`."""

import atexit
import os
import socket
import threading

import torch

from course.collectives import all_reduce


def summed(comm):
    """Every rank says who it is, and what all sum up to."""
    x = torch.full((3,), float(comm.rank))
    all_reduce(comm, x)
    comm.native.all_reduce(x)
    said = f"{comm.rank} {comm.size} {comm.node} {socket.gethostname()} {x[0].item()}\n"
    os.write(1, said.encode())  # in one piece, among those of others


def fails(comm):
    """Rank 1 fails, for which the others wait."""
    if comm.rank == 1:
        raise KeyError("of rank 1")
    comm.recv(torch.empty(1), 1)


def leaves_things(comm):
    """What a rank has not finished itself: a thread, a function for its end, an open file."""
    late = threading.Thread(target=lambda: (threading.main_thread().join(), said("thread")))
    late.start()
    atexit.register(said, "atexit")
    globals()["file"] = open(os.dup(1), "w")  # noqa: SIM115 - it is to be left open
    globals()["file"].write("file\n")
    globals()["torn"] = Torn()


def said(word):
    os.write(1, f"{word}\n".encode())


class Torn:
    """Says so when the interpreter takes its modules apart."""

    def __del__(self, write=os.write):
        write(1, b"modules\n")
