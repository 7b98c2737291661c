"""The ranks of one node, in the hands of its agent."""

import os
import pickle

from course.worlds.cores import threads
from course.worlds.framing import Inbox
from course.worlds.local.workers import Workers
from course.worlds.sockets.door import Ticket, knock

HEAD = -2  # who speaks, if it is the launcher
OF_NODE = ("SLURM", "CUDA_", "ROCR_", "GPU_DEVICE", "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR")
JOIN_S = 60.0  # for all nodes to have begun


class RanksHere(Workers):
    """Those ranks of a run that live on this node; `line`: where the launcher speaks to them."""

    def __init__(self, line, door):
        super().__init__()
        self.line, self.door, self.over = line, door, False
        self._listen(line, HEAD, "control", Inbox(line))

    def begin(self, part: dict):
        """Start this node's ranks, and connect them with those of other nodes.

        `part`: the job, the number of this run, of this node, the node of each rank and the door of
        each node.
        """
        self.part, nodes = part, part["nodes"]
        mine = [rank for rank, node in enumerate(nodes) if node == part["node"]]
        job = part["job"]
        job["threads"] = threads(len(mine))
        job["call"] = pickle.PickleBuffer(job["call"])
        job["environment"] = environment(job["environment"])
        self.launch(job, mine, len(nodes))

    def _connect(self, ranks):
        """To each rank its ends, in the order of its peers."""
        ends = self._near(ranks) | self._far(ranks)
        for rank, peer in sorted(ends):
            self._hand_over(rank, ends[rank, peer])

    def _near(self, ranks) -> dict:
        """{(rank, peer): its end} of connections inside this node."""
        pairs = [(low, high) for low in ranks for high in ranks if low < high]
        ends = {}
        for low, high in pairs:
            ends[low, high], ends[high, low] = self.pair(low, high)
        return ends

    def _far(self, ranks) -> dict:
        """The same of connections to other nodes: the lower rank's node knocks."""
        run, nodes, doors = self.part["run"], self.part["nodes"], self.part["doors"]
        others = [peer for peer, node in enumerate(nodes) if node != self.part["node"]]
        ends = {}
        for rank in ranks:
            for peer in (peer for peer in others if rank < peer):
                ticket = Ticket(run, rank, peer)
                ends[rank, peer] = knock(doors[nodes[peer]], ticket, self.door.secret)
        expected = {Ticket(run, peer, rank) for rank in ranks for peer in others if peer < rank}
        admitted = self.door.admit(expected, JOIN_S)
        return ends | {(ticket.peer, ticket.rank): end for ticket, end in admitted.items()}

    def _poll(self, timeout) -> list:
        """What the ranks say; what the launcher asks is done at once."""
        heard = super()._poll(timeout)
        for source, kind, value in heard:
            if source == HEAD and kind == "stack":
                self.request_stack(value)
            elif source == HEAD:
                self.over = True
        self.over = self.over or self.line not in self.open_files  # the launcher is gone
        return [entry for entry in heard if entry[0] != HEAD]

    def wait_for_the_end(self):
        """Listen to the launcher alone."""
        while not self.over:
            self._poll(None)


def environment(launcher: dict) -> dict:
    """The launcher's variables, but for those that say where one is: these are the node's."""
    own = {key: value for key, value in os.environ.items() if key.startswith(OF_NODE)}
    return {k: v for k, v in launcher.items() if not k.startswith(OF_NODE)} | own
