"""Lanes: long tensors move while their ranks compute.

What is begun on a rank moves when it waits, and what no buffer holds would stay where it is for as
long as the rank computes: all of GPipe's forwards.  So a long tensor is sent in the background, by
a communicator of the sender and the receiver alone, one for each direction: nothing in a lane
waits for another lane.  Both use it in the order in which the sender's row has it.
"""

LONG_BYTES = 1 << 18


class Lanes:
    """A lane for each of `pairs` (from, to) of the ranks of `comm`, and `comm` for what is short.

    Collective: a split for each of them.
    """

    def __init__(self, comm, pairs):
        splits = {pair: comm.split(0 if comm.rank in pair else None) for pair in pairs}
        self.comm, self.lanes = comm, splits

    def send(self, x, rank, tag):
        """Begin to send; what this returns is to be waited for."""
        if x.nbytes < LONG_BYTES:
            return self.comm.isend(x, rank, tag)
        return self.lanes[self.comm.rank, rank].submit(_send, x)

    def receive(self, out, rank, tag):
        """Begin to receive; what this returns is to be waited for."""
        if out.nbytes < LONG_BYTES:
            return self.comm.irecv(out, rank, tag)
        return self.lanes[rank, self.comm.rank].submit(_receive, out)


def _send(comm, x):
    comm.send(x, 1 - comm.rank)


def _receive(comm, out):
    comm.recv(out, 1 - comm.rank)
