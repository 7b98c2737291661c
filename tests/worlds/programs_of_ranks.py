"""Programs that a launcher finds by their name: `module:function`."""

import os
import socket

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
