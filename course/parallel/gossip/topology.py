"""Topologies: who talks to whom, how much a neighbour's word weighs, how soon all agree.

Draw a graph (`ring_graph`, `wheel_graph`, ...), weigh it (`metropolis`), predict how fast it
agrees and at what cost (`spectral_gap`, `steps_to_agree`, `gossip_cost`).  `gossip.py` runs it.
"""

import itertools
import math
import random
from typing import NamedTuple

import torch

from course.collectives.cost import Cost
from course.comm.tensors import describe

ROUNDING = 1e-12  # what weights in float64 may be off by, on thousands of ranks


class Graph(NamedTuple):
    """Who talks to whom: `edges` are pairs (a, b) of the ranks 0 to `ranks` - 1, each both ways."""

    ranks: int
    edges: tuple

    @property
    def neighbours(self) -> list[list[int]]:
        """The ranks that each rank talks to.  Raises ValueError for an edge that cannot be."""
        found = [set() for _ in range(self.ranks)]
        for a, b in self.edges:
            if a == b or not (0 <= a < self.ranks and 0 <= b < self.ranks):
                raise ValueError(f"an edge joins two of {self.ranks} ranks, not {a} and {b}")
            found[a].add(b)
            found[b].add(a)
        return [sorted(ranks) for ranks in found]

    @property
    def components(self) -> list[list[int]]:
        """The ranks that can hear of one another, each group by itself; one if connected."""
        import networkx  # imported here: ranks that only mix have no use for it

        graph = networkx.Graph(dict(enumerate(self.neighbours)))
        return sorted(map(sorted, networkx.connected_components(graph)))


def ring_graph(p: int) -> Graph:
    """p ranks in a circle: two neighbours each."""
    return _graph(p, ((a, (a + 1) % p) for a in range(p)))


def star_graph(p: int) -> Graph:
    """Rank 0, the hub, talks to all others, who talk to nobody else."""
    return _graph(p, ((0, a) for a in range(p)))


def wheel_graph(p: int) -> Graph:
    """A star whose other ranks, the rim, form a ring."""
    rim = ((1 + a, 1 + (a + 1) % (p - 1)) for a in range(p - 1))
    return _graph(p, itertools.chain(star_graph(p).edges, rim))


def complete_graph(p: int) -> Graph:
    """Everyone talks to everyone."""
    return _graph(p, itertools.combinations(range(p), 2))


def random_regular_graph(p: int, degree: int, seed: int) -> Graph:
    """A random graph in which every rank has `degree` neighbours.

    Edges a-b and c-d become a-d and c-b again and again; a graph in pieces is drawn further.
    Raises ValueError unless 2 <= degree < p with p * degree even.
    """
    if not (2 <= degree < p and p * degree % 2 == 0):
        raise ValueError(
            f"{p} ranks cannot have {degree} neighbours each: at least 2, fewer than there are "
            "ranks, and ranks times neighbours even"
        )
    draw = random.Random(seed)
    across = ((a, a + p // 2) for a in range(p // 2 if degree % 2 else 0))
    chords = ((a, (a + hop) % p) for hop in range(1, degree // 2 + 1) for a in range(p))
    graph = _edge_swaps(_graph(p, itertools.chain(across, chords)), draw)
    while len(graph.components) > 1:
        graph = _edge_swaps(graph, draw)
    return graph


def metropolis(graph: Graph) -> torch.Tensor:
    """The mixing matrix [ranks, ranks] of a graph: symmetric, and every row sums to one.

    1 / (1 + the larger of two neighbours' degrees) for each edge; what is left stays at home.
    Raises ValueError for a graph in pieces.  Source: Xiao, Boyd & Kim 2007.
    """
    neighbours = graph.neighbours
    matrix = torch.zeros(graph.ranks, graph.ranks, dtype=torch.float64)
    for a, others in enumerate(neighbours):
        for b in others:
            matrix[a, b] = 1 / (1 + max(len(others), len(neighbours[b])))
    return check_mixing_matrix(matrix + torch.diag(1 - matrix.sum(dim=1)))


def check_mixing_matrix(matrix):
    """`matrix` [ranks, ranks] if repeated mixing with it leads to the mean from wherever it begins.

    Raises ValueError for what is no mixing matrix.
    """
    if not isinstance(matrix, torch.Tensor):
        raise ValueError(f"a mixing matrix is a tensor, not {type(matrix).__name__}")
    square = matrix.dim() == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if matrix.dtype != torch.float64 or not square:
        what = describe(matrix.dtype, matrix.shape)
        raise ValueError(f"a mixing matrix is float64 [ranks, ranks], not {what}")
    _check_mean_is_kept(matrix)
    second = _second_eigenvalue(matrix)
    if second > 1 - ROUNDING:
        pieces = Graph(len(matrix), _edges(matrix)).components
        if len(pieces) > 1:
            raise ValueError(
                f"a graph in {len(pieces)} pieces has no common mean to find: {pieces}"
            )
        raise ValueError(f"a second eigenvalue of size {second:.6g}, not below 1, never agrees")
    return matrix


def _check_mean_is_kept(matrix):
    """Rows sum to one, and so do columns, which are the rows."""
    sums, uneven = matrix.sum(dim=1), (matrix - matrix.T).abs()
    row = int((sums - 1).abs().argmax())
    if not abs(sums[row] - 1) <= ROUNDING:
        raise ValueError(f"row {row} of a mixing matrix sums to {sums[row]:.6g}, not to 1")
    a, b = divmod(int(uneven.argmax()), len(matrix))
    if uneven[a, b] > ROUNDING:
        both = f"[{a}, {b}] is {matrix[a, b]:.6g} and [{b}, {a}] {matrix[b, a]:.6g}"
        raise ValueError(f"a mixing matrix must be symmetric, but {both}")


def spectral_gap(matrix) -> float:
    """1 - the second largest |eigenvalue| of a mixing matrix [ranks, ranks].

    Every step shrinks the distance to the mean to 1 - gap of what it was, or less.
    Raises ValueError for what is no mixing matrix.
    """
    return 1 - _second_eigenvalue(check_mixing_matrix(matrix))


def steps_to_agree(matrix, tolerance: float) -> int:
    """Steps after which the distance to the mean is surely `tolerance` of what it was, or less.

    Raises ValueError for a tolerance outside (0, 1), or what is no mixing matrix.
    """
    if not 0 < tolerance < 1:
        raise ValueError(f"a tolerance is a fraction between 0 and 1, not {tolerance}")
    left = 1 - spectral_gap(matrix)
    if left < ROUNDING:
        return min(1, len(matrix) - 1)
    return math.ceil(math.log(tolerance) / math.log(left))


def gossip_cost(graph: Graph, nbytes: int, steps: int = 1) -> Cost:
    """Every step a rank sends its N bytes to each of its neighbours, and receives as much.

    The longest way is that of the rank with the most neighbours: the hot spot.  The messages of a
    step are under way at once, so that a step takes one alpha.
    """
    messages = [steps * len(others) for others in graph.neighbours]
    most, sent = max(messages), [count * nbytes for count in messages]
    path = most * nbytes
    return Cost(most, sent, messages, path, path, overlapped_alphas=max(0, most - steps))


def _graph(p, pairs) -> Graph:
    if p < 1:
        raise ValueError(f"a graph needs at least 1 rank, not {p}")
    return Graph(p, tuple(sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})))


def _edge_swaps(graph, draw) -> Graph:
    """The same degrees, other edges: ten attempts an edge to switch it with another."""
    edges, known = list(graph.edges), set(graph.edges)
    for _ in range(10 * len(edges)):
        i, j = draw.sample(range(len(edges)), 2)
        (a, b), (c, d) = edges[i], draw.sample(edges[j], 2)
        new = [(min(a, d), max(a, d)), (min(c, b), max(c, b))]
        if len({a, b, c, d}) == 4 and known.isdisjoint(new):
            known ^= {edges[i], edges[j], *new}
            edges[i], edges[j] = new
    return _graph(graph.ranks, edges)


def _second_eigenvalue(matrix) -> float:
    """The largest |eigenvalue| of what a matrix does to differences from the mean."""
    return float(torch.linalg.eigvalsh(matrix.detach() - 1 / len(matrix)).abs().max())


def _edges(matrix) -> tuple:
    return tuple((a, b) for a, b in matrix.nonzero().tolist() if a != b)
