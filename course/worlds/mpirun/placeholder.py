"""A doorman: what an MPI's process manager starts in place of a rank.

It is a program of its own (`python placeholder.py PATH`).  It hands what the manager gave it, its
environment and its line to the manager, to the launcher behind the socket at PATH, which passes
them on to a rank forked from the nursery: such a rank starts at once, and the launcher hears from
its parent how it ends.  The manager takes the doorman for the rank; he stays until that socket is
closed, by the launcher or by its end.
"""

import os
import pickle
import socket
import struct
import sys

LINE = "PMI_FD"  # the environment's name for the number of the line to an MPICH's manager

if __name__ == "__main__":
    body = pickle.dumps(dict(os.environ))
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(sys.argv[1])
        socket.send_fds(door, [b"."], [int(os.environ[LINE])] if LINE in os.environ else [])
        door.sendall(struct.pack("<IQ", 1, len(body)) + body)  # as course.worlds.frames has it
        door.recv(1)
