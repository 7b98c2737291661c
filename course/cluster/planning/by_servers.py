"""Sums of flat tensors server by server: what leaves a server leaves by all its cards."""

import torch

from course.collectives import all_gather, reduce_scatter
from course.collectives.hierarchical import ranks_by_node


class ByServers:
    """Reduce-scatter and all-gather of flat tensors [length] over the ranks of `comm`.

    Where all servers have g > 1 of its ranks each, inside them first, then of each part across
    them: 2(g-1) + 2(M-1) steps for both together on M servers, of which only the last 2(M-1), of
    parts of 1/(gM), go over cables between servers.  One ring through all ranks sends as many
    bytes, but out of a server through one card alone.
    """

    def __init__(self, comm, length: int):
        self.levels = []  # (communicator, the length of what its ranks divide)
        for group in groups_by_server(comm):
            self.levels.append((group, length))
            length = len(torch.empty(length, device="meta").tensor_split(group.size)[group.rank])

    def own(self, flat):
        """This rank's part of a tensor [length], a view."""
        for group, _ in self.levels:
            flat = flat.tensor_split(group.size)[group.rank]
        return flat

    def reduce_scatter(self, flat):
        """This rank's part of the sum over all ranks."""
        for group, _ in self.levels:
            parts = list(flat.tensor_split(group.size))
            flat = torch.empty_like(parts[group.rank])
            reduce_scatter(group, flat, parts)
        return flat

    def all_gather(self, mine):
        """The whole tensor, of which each rank has its part."""
        for group, length in reversed(self.levels):
            whole = mine.new_empty(length)
            all_gather(group, list(whole.tensor_split(group.size)), mine)
            mine = whole
        return mine


def groups_by_server(comm) -> list:
    """`comm` itself; or, where all servers have as many of its ranks, and more than one, those of
    this rank's server, and those that have its place in theirs."""
    servers = ranks_by_node(comm.nodes)
    each = len(servers[0])
    if not 1 < each < comm.size or any(len(ranks) != each for ranks in servers):
        return [comm]
    mine = next(ranks for ranks in servers if comm.rank in ranks)
    return [comm.split(servers.index(mine)), comm.split(mine.index(comm.rank))]
