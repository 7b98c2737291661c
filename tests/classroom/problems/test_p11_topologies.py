"""Rounds, shortcuts, weights, one round, a mean that fades: answers that were really likely."""

import torch

from course.classroom.exercises import check
from course.classroom.problems.p11_topologies import (
    gossip_round,
    mean_by_gossip,
    mean_that_fades,
)
from course.collectives import all_gather, all_reduce
from course.parallel.gossip import topology
from course.parallel.gossip.gossip import gossip
from course.parallel.gossip.topology import metropolis
from tests.classroom.gallery import Gallery, checked, gallery_tests

OPPOSITE = [(rank, rank + 8) for rank in range(8)]

# The mixing matrix


def matrix_stub(graph):
    """The Metropolis weights of graph."""
    ...


def weights_by_loops(graph):
    near, p = graph.neighbours, graph.ranks
    matrix = torch.zeros(p, p)
    for a in range(p):
        for b in near[a]:
            matrix[a, b] = 1 / (1 + max(len(near[a]), len(near[b])))
        matrix[a, a] = 1 - matrix[a].sum()
    return matrix


def weights_of_edges(graph):
    near = graph.neighbours
    matrix = torch.eye(graph.ranks, dtype=torch.float64)
    for a, b in graph.edges:
        weight = 1 / max(len(near[a]) + 1, len(near[b]) + 1)
        matrix[a, b] = matrix[b, a] = weight
        matrix[a, a] -= weight
        matrix[b, b] -= weight
    return matrix


def rows_of(graph, weight, own=None):
    """The matrix whose edges weigh weight(degree, other's degree)."""
    near = graph.neighbours
    matrix = torch.zeros(graph.ranks, graph.ranks, dtype=torch.float64)
    for a, others in enumerate(near):
        for b in others:
            matrix[a, b] = weight(len(others), len(near[b]))
        matrix[a, a] = 1 - matrix[a].sum() if own is None else own(len(others))
    return matrix


def plain_means(graph):
    return rows_of(graph, lambda mine, theirs: 1 / (1 + mine))


def smaller_degree(graph):
    return rows_of(graph, lambda mine, theirs: 1 / (1 + min(mine, theirs)))


def own_by_degree(graph):
    return rows_of(graph, lambda mine, theirs: 1 / (1 + max(mine, theirs)), lambda d: 1 / (1 + d))


def without_oneself(graph):
    return rows_of(graph, lambda mine, theirs: 1 / max(mine, theirs))


def without_diagonal(graph):
    return rows_of(graph, lambda mine, theirs: 1 / (1 + max(mine, theirs)), lambda d: 0.0)


def everybody_alike(graph):
    return torch.full((graph.ranks, graph.ranks), 1 / graph.ranks)


def by_the_largest_degree(graph):
    largest = max(len(near) for near in graph.neighbours)
    return rows_of(graph, lambda mine, theirs: 1 / (1 + largest))


def weights_in_lists(graph):
    return weights_by_loops(graph).tolist()


def own_row_only(graph):
    return weights_by_loops(graph)[0]


def weights_from_the_package(graph):
    return metropolis(graph)


def weights_from_the_module(graph):
    return topology.metropolis(graph)


def weights_that_stop(graph):
    return 1 / (1 + max(graph.degrees))


# One round


def round_stub(comm, x, matrix):
    """One round of gossip."""
    pass


def near_and_row(comm, matrix):
    row = matrix[comm.rank].tolist()
    return [r for r, weight in enumerate(row) if weight and r != comm.rank], row


def round_with_handles(comm, x, matrix):
    near, row = near_and_row(comm, matrix)
    heard = {r: torch.empty_like(x) for r in near}
    waiting = [comm.irecv(out, r) for r, out in heard.items()]
    waiting += [comm.isend(x, r) for r in near]
    for handle in waiting:
        handle.wait()
    x.copy_(row[comm.rank] * x + sum(row[r] * out for r, out in heard.items()))


def round_of_exchanges(comm, x, matrix):
    near, row = near_and_row(comm, matrix)
    before, out = x.clone(), torch.empty_like(x)
    x *= row[comm.rank]
    for r in near:
        comm.exchange(before, r, out, r)
        x += row[r] * out


def round_in_order(comm, x, matrix):
    near, row = near_and_row(comm, matrix)
    new, out = row[comm.rank] * x, torch.empty_like(x)
    for r in near:
        for turn in sorted((comm.rank, r)):
            if turn == comm.rank:
                comm.send(x, r)
            else:
                comm.recv(out, r)
        new += row[r] * out
    x.copy_(new)


def round_of_vectors(comm, x, matrix):
    near, _ = near_and_row(comm, matrix)
    heard = [torch.empty_like(x) for _ in near]
    for r, out in zip(near, heard):
        comm.exchange(x, r, out, r)
    x.copy_(matrix[comm.rank, [comm.rank, *near]] @ torch.stack([x, *heard]))


def columns_for_rows(comm, x, matrix):
    round_of_exchanges(comm, x, matrix.T)


def round_of_the_package(comm, x, matrix):
    gossip(comm, x, matrix, 1)


def sends_first(comm, x, matrix):
    near, row = near_and_row(comm, matrix)
    for r in near:
        comm.send(x, r)
    new, out = row[comm.rank] * x, torch.empty_like(x)
    for r in near:
        comm.recv(out, r)
        new += row[r] * out
    x.copy_(new)


def mixes_as_it_goes(comm, x, matrix):
    near, row = near_and_row(comm, matrix)
    out = torch.empty_like(x)
    x *= row[comm.rank]
    for r in near:
        comm.exchange(x, r, out, r)
        x += row[r] * out


def to_everyone(comm, x, matrix):
    everyones = [torch.empty_like(x) for _ in range(comm.size)]
    for step in range(comm.size):
        dst, src = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
        if step:
            comm.exchange(x, dst, everyones[src], src)
    everyones[comm.rank] = x.clone()
    x.copy_(torch.tensordot(matrix[comm.rank], torch.stack(everyones), 1))


def by_all_gather(comm, x, matrix):
    everyones = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, everyones, x)
    x.copy_(torch.tensordot(matrix[comm.rank], torch.stack(everyones), 1))


def forgets_itself(comm, x, matrix):
    before = x.clone()
    round_of_exchanges(comm, x, matrix)
    x -= matrix[comm.rank, comm.rank] * before


def takes_the_plain_mean(comm, x, matrix):
    near, _ = near_and_row(comm, matrix)
    before, out = x.clone(), torch.empty_like(x)
    for r in near:
        comm.exchange(before, r, out, r)
        x += out
    x /= 1 + len(near)


def takes_the_sum(comm, x, matrix):
    near, _ = near_and_row(comm, matrix)
    before, out = x.clone(), torch.empty_like(x)
    for r in near:
        comm.exchange(before, r, out, r)
        x += out


def takes_the_mean_of_all(comm, x, matrix):
    all_reduce(comm, x, "mean")


def returns_the_mixture(comm, x, matrix):
    mine = x.clone()
    round_of_exchanges(comm, mine, matrix)
    return mine


def never_waits_for_its_sends(comm, x, matrix):
    near, row = near_and_row(comm, matrix)
    before, out = x.clone(), torch.empty_like(x)
    for r in near:
        comm.isend(before, r)
    x *= row[comm.rank]
    for r in near:
        comm.recv(out, r)
        x += row[r] * out


def asks_twice(comm, x, matrix):
    before = x.clone()
    round_of_exchanges(comm, x, matrix)
    x.copy_(before)
    round_of_exchanges(comm, x, matrix)


# The mean that fades


def weighed(comm, x, graph, rounds, matrix):
    near = graph.neighbours[comm.rank]
    for _ in range(rounds):
        heard = [torch.empty_like(x) for _ in near]
        for other, out in zip(near, heard):
            comm.exchange(x, other, out, other)
        x *= matrix[comm.rank, comm.rank]
        for other, out in zip(near, heard):
            x += matrix[comm.rank, other] * out


def largest_degree_for_all(comm, x, graph, rounds):
    """As sound, and as fast on regular graphs, but slower elsewhere."""
    largest = max(len(near) for near in graph.neighbours)
    weighed(comm, x, graph, rounds, rows_of(graph, lambda mine, theirs: 1 / (1 + largest)))


def from_the_package(comm, x, graph, rounds):
    gossip(comm, x, metropolis(graph), rounds)


def own_row_of_metropolis(comm, x, graph, rounds):
    weighed(comm, x, graph, rounds, metropolis(graph))


def normalised_afterwards(comm, x, graph, rounds):
    matrix = own_by_degree(graph)
    weighed(comm, x, graph, rounds, matrix / matrix.sum(dim=1, keepdim=True))


def plain_mean_of_neighbours(comm, x, graph, rounds):
    weighed(comm, x, graph, rounds, plain_means(graph))


def keeps_all_of_its_own(comm, x, graph, rounds):
    matrix = rows_of(graph, lambda mine, theirs: 1 / (1 + max(mine, theirs)), lambda degree: 1.0)
    weighed(comm, x, graph, rounds, matrix)


def own_by_ranks(comm, x, graph, rounds):
    matrix = rows_of(
        graph, lambda mine, theirs: 1 / (1 + max(mine, theirs)), lambda degree: 1 / graph.ranks
    )
    weighed(comm, x, graph, rounds, matrix)


def fades_still(comm, x, graph, rounds):
    """Another way to write the same bug."""
    weighed(comm, x, graph, rounds, own_by_degree(graph))


def half_as_far(comm, x, graph, rounds):
    matrix = metropolis(graph)
    weighed(comm, x, graph, rounds, (matrix + torch.eye(graph.ranks)) / 2)


def does_nothing_but_talk(comm, x, graph, rounds):
    weighed(comm, x, graph, rounds, torch.eye(graph.ranks))


def asks_all_of_them(comm, x, graph, rounds):
    all_reduce(comm, x, "mean")


def one_round_only(comm, x, graph, rounds):
    weighed(comm, x, graph, 1, metropolis(graph))


def one_round_more(comm, x, graph, rounds):
    weighed(comm, x, graph, rounds + 1, metropolis(graph))


GALLERIES = [
    Gallery(
        "rounds_to_agree",
        ...,
        [135, 135.0, torch.tensor(135)],
        {
            "the gap is what goes; what is left is 1 - gap.": 3,
            "a round takes 5 % of what is left, not of what there was.": 20,
            "that is for the square of the disagreement.": 68,
            "powers of ten: the natural logarithm is wanted.": 60,
            "after 134 rounds 0.001035 may be left, which is more than 0.001.": 134,
            "the number of rounds is whole, and 134.672 is not.": 134.672,
            "e ** -0.05 is not what a round leaves: that is 1 - 0.05.": 139,
            "fewer than 150 rounds are enough.": 150,
            "a number is wanted, not 'many'.": "many",
        },
    ),
    Gallery(
        "rounds_from_two",
        ...,
        [145, 144.5, 144, 146, torch.tensor(145)],
        {
            "that many after round 40: count from the start.": 105,
            "that starts at round 0 with all of it, at the late speed": 151,
            "that takes the first rounds and the late ones together": 131,
            "that uses the first measurement alone": 115,
            "that goes on along a straight line": 53,
            "0.058 would be left after 56.": 56,
            "1.4e-05 would be left after 238.": 238,
            "a number is wanted, not 'soon'.": "soon",
        },
    ),
    Gallery(
        "shortcuts",
        ...,
        [
            OPPOSITE,
            [(rank, (rank + 5) % 16) for rank in range(0, 16, 2)],
            [list(e) for e in OPPOSITE],
        ],
        {
            "rank 0 would have 15 neighbours, not 3.": [(0, rank) for rank in range(2, 15)],
            "rank 0 would have 4 neighbours, not 3.": [(r, (r + 2) % 16) for r in range(16)],
            "that is the ring itself, which needs 133 rounds.": [(0, 1), (15, 0)],
            "179 rounds instead of 133: the way is shorter, but a rank with one more neighbour "
            "gives each of them 1/4 instead of 1/3, and hands on less.": [
                (rank, 15 - rank) for rank in range(1, 7)
            ],
            "62 rounds: better than 133, but more than 50.": [(0, 8), (4, 12)],
            "a shortcut joins two of the ranks 0 to 15, not (8, 16).": [
                (r, r + 8) for r in range(16)
            ],
            "a shortcut joins two of the ranks 0 to 15, not (3, 3).": [(3, 3)],
            "a shortcut is a pair of ranks, not 8.": [8, 9],
            "a list of pairs of ranks is wanted, not 8.": 8,
        },
    ),
    Gallery(
        "mixing_matrix",
        matrix_stub,
        [weights_by_loops, weights_of_edges],
        {
            "metropolis does the work for you here": weights_from_the_package,
            "for the star of 4, [0, 1] is 0.25 and [1, 0] 0.5: a rank that gives more": plain_means,
            "for the star of 4, a weight is below 0": smaller_degree,
            "for the star of 4, row 1 sums to 0.75, not to 1.": own_by_degree,
            "the sums are right, but [0, 0] should be 0.3333, not 0.": without_oneself,
            "for a tree of 5, the sums are right, but": by_the_largest_degree,
            "for the ring of 5, row 0 sums to 0.666667, not to 1.": without_diagonal,
            "for the ring of 5, ranks 0 and 2 do not talk, but [0, 2] is not 0.": everybody_alike,
            "a tensor [5, 5] is wanted, not list.": weights_in_lists,
            "a tensor [5, 5] is wanted, not [5].": own_row_only,
            "weights_that_stop, line 2 of your cell:": weights_that_stop,
        },
    ),
    Gallery(
        "gossip_round",
        round_stub,
        [gossip_round, round_with_handles, round_of_exchanges, round_in_order],
        {
            "on 4 ranks, rank 0 holds the mixture by column 0 of the": columns_for_rows,
            "round_of_vectors, line 6 of your cell:": round_of_vectors,
            "gossip does the work for you here": round_of_the_package,
            "the ranks wait for one another (on 4 ranks)": sends_first,
            "rank 0 holds another mixture: all have to send what they held": mixes_as_it_goes,
            "on 4 ranks, rank 0 sends to rank 2: no neighbour.": to_everyone,
            "all_gather does the work for you here": by_all_gather,
            "rank 0 holds the weighted sum of its neighbours without its own part.": forgets_itself,
            "on 5 ranks, rank 1 holds the plain mean of itself and its neig": takes_the_plain_mean,
            "on 4 ranks, rank 0 holds the sum of itself and its neighbours.": takes_the_sum,
            "on 4 ranks, rank 0 holds the mean of all ranks.": takes_the_mean_of_all,
            "x itself has to change: do not return another tensor.": returns_the_mixture,
            "has returned without a wait() for send to rank": never_waits_for_its_sends,
            "rank 0 sends 4 times the bytes of x where 2 times are enough.": asks_twice,
        },
    ),
    Gallery(
        "mean_by_gossip",
        mean_that_fades,
        [mean_by_gossip, own_row_of_metropolis, largest_degree_for_all],
        {
            "on a star of 4, after 1 round, the mean is 0.9346 times": normalised_afterwards,
            "on a star of 4, after 1 round, the mean is 0.8039 times": plain_mean_of_neighbours,
            "on a ring of 4, after 3 rounds, rank 0 holds 4.63 where all": keeps_all_of_its_own,
            "on a ring of 4, after 3 rounds, rank 0 holds 0.7703 where": own_by_ranks,
            "on a star of 4, after 1 round, rank 1 holds 0.75 where all": fades_still,
            "after 3 rounds, 0.266 of the disagreement is left, not 0.192.": half_as_far,
            "after 3 rounds, 1 of the disagreement is left": does_nothing_but_talk,
            "after 3 rounds, 0.333 of the disagreement is left": one_round_only,
            "rank 0 sends 8 times the bytes of x where 6 times are enough.": one_round_more,
            "all_reduce does the work for you here": asks_all_of_them,
            "gossip does the work for you here": from_the_package,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_the_weights_of_the_package_are_refused_under_any_name():
    for verdict in (
        checked("mixing_matrix", weights_from_the_module),
        check("mixing_matrix", metropolis),
    ):
        assert verdict.right is False and "does the work for you here" in verdict.sentence
