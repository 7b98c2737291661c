"""Memory that the ranks of one node share, as a group of them sees it."""


class NodeMemory:
    """`buffers` [bytes] by rank: each rank of this node writes its own and reads all.

    In a `with` block: an error within it makes the memory useless from then on.
    """

    def __init__(self, comm, window):
        self._comm, self._window = comm, window
        ranks = enumerate(comm.members)
        self.buffers = {rank: window.buffers[m] for rank, m in ranks if m in window.buffers}

    def barrier(self):
        """Return once all ranks of this node are here: what they wrote before can be read after
        it.  Cost: no message.  Raises CommTimeout, PeerLost, CommError."""
        comm = self._comm
        peers = [comm.members[rank] for rank in self.buffers if rank != comm.rank]
        self._window.barrier(peers, f"a barrier of node {comm.node} within {comm.call}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self._window.poison()
