"""Exercises of notebook 11: rounds from a gap and from two measurements, shortcuts across a ring,
the mixing matrix, a round of gossip from messages, a mean that fades away."""

import math

import torch

from course.classroom.answers import check_filled, function, held, number, on_ranks
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong
from course.parallel.gossip.topology import (
    Graph,
    metropolis,
    ring_graph,
    spectral_gap,
    star_graph,
    steps_to_agree,
    wheel_graph,
)

GAP, TOLERANCE = 0.05, 1e-3
MEASURED = (20, 0.30), (40, 0.12)  # rounds, and the share of the disagreement that was left
ROUND_TABLE, NEIGHBOURS, ROUNDS = 16, 3, 50  # the ring with shortcuts, and what it may take
LARGE = 2**18  # elements: 2 MB, more than a socket holds
ODD = Graph(5, ((0, 1), (0, 2), (0, 3), (3, 4)))  # 3, 1, 1, 2 and 1 neighbours


def check_rounds_to_agree(answer):
    rounds, right = number(answer), math.ceil(math.log(TOLERANCE) / math.log(1 - GAP))
    if rounds == right:
        return f"0.95 ** {right - 1} is still above a thousandth, 0.95 ** {right} is below it."
    for wrong, sentence in (
        (math.log(TOLERANCE) / math.log(GAP), "the gap is what goes; what is left is 1 - gap."),
        ((1 - TOLERANCE) / GAP, "a round takes 5 % of what is left, not of what there was."),
        (-math.log(TOLERANCE) / GAP, f"e ** -{GAP} is not what a round leaves: that is 1 - {GAP}."),
        (right / 2, "that is for the square of the disagreement."),
        (math.log10(1 / TOLERANCE) / GAP, "powers of ten: the natural logarithm is wanted."),
    ):
        if abs(rounds - wrong) <= 1:
            raise Wrong(sentence)
    if rounds != round(rounds):
        raise Wrong(f"the number of rounds is whole, and {rounds:.6g} is not.")
    if 0 <= rounds < right:
        left = f"{(1 - GAP) ** rounds:.6f} may be left"
        raise Wrong(f"after {rounds:.0f} rounds {left}, which is more than {TOLERANCE}.")
    raise Wrong(f"fewer than {rounds:.6g} rounds are enough.")


def check_rounds_from_two(answer):
    rounds, ((early, more), (late, less)) = number(answer), MEASURED
    factor, goal = (less / more) ** (1 / (late - early)), math.log(TOLERANCE)
    exact = late + math.log(TOLERANCE / less) / math.log(factor)
    if exact - 1 <= rounds <= math.ceil(exact) + 1:
        return f"{1 - factor:.3f} is the gap, and {math.ceil(exact)} rounds are enough."
    for wrong, sentence in (
        (exact - late, f"that many after round {late}: count from the start."),
        (goal / math.log(factor), "that starts at round 0 with all of it, at the late speed: the "
         "first rounds were faster. Start from what was measured."),
        (late * goal / math.log(less), "that takes the first rounds and the late ones together: "
         "only the late ones, between the two measurements, shrink as the gap says."),
        (early * goal / math.log(more), "that uses the first measurement alone: the first rounds "
         "shrink more than the slowest pattern."),
        (late + (less - TOLERANCE) * (late - early) / (more - less), "that goes on along a "
         "straight line: each round takes the same share, not the same amount."),
    ):  # fmt: skip
        if abs(rounds - wrong) <= 1.5:
            raise Wrong(sentence)
    left = less * factor ** (rounds - late)
    raise Wrong(f"at the speed of the late rounds {left:.2g} would be left after {rounds:.6g}.")


def check_shortcuts(answer):
    edges = [pair(each) for each in answer] if isinstance(answer, list | tuple) else None
    if edges is None:
        raise Wrong(f"a list of pairs of ranks is wanted, not {answer!r:.40}.")
    graph = Graph(ROUND_TABLE, (*ring_graph(ROUND_TABLE).edges, *edges))
    for rank, near in enumerate(graph.neighbours):
        if len(near) > NEIGHBOURS:
            raise Wrong(f"rank {rank} would have {len(near)} neighbours, not {NEIGHBOURS}.")
    matrix, without = metropolis(graph), metropolis(ring_graph(ROUND_TABLE))
    rounds, before = steps_to_agree(matrix, TOLERANCE), steps_to_agree(without, TOLERANCE)
    if matrix.equal(without):
        raise Wrong(f"that is the ring itself, which needs {before} rounds.")
    if rounds >= before:
        raise Wrong(
            f"{rounds} rounds instead of {before}: the way is shorter, but a rank with one more "
            "neighbour gives each of them 1/4 instead of 1/3, and hands on less."
        )
    if rounds > ROUNDS:
        raise Wrong(f"{rounds} rounds: better than {before}, but more than {ROUNDS}.")
    return f"{rounds} rounds instead of {before}: the gap is {spectral_gap(matrix):.3f} now."


def pair(each) -> tuple:
    """`each` as an edge between two ranks of the round table."""
    ranks = tuple(each) if isinstance(each, list | tuple) else ()
    if len(ranks) != 2 or not all(isinstance(rank, int) for rank in ranks):
        raise Wrong(f"a shortcut is a pair of ranks, not {each!r:.40}.")
    if ranks[0] == ranks[1] or not all(0 <= rank < ROUND_TABLE for rank in ranks):
        raise Wrong(f"a shortcut joins two of the ranks 0 to {ROUND_TABLE - 1}, not {ranks}.")
    return ranks


def check_mixing_matrix(answer):
    refuse_the_package(function(answer))
    for what, graph in (
        ("the ring of 5", ring_graph(5)),
        ("the star of 4", star_graph(4)),
        ("a tree of 5", ODD),
        ("a single rank", Graph(1, ())),
    ):
        check_matrix(what, answer(graph), metropolis(graph), graph)
    return "symmetric, and each row sums to one: what one rank gives away, another one gets."


def refuse_the_package(answer):
    """Refuse an answer that calls the package's `metropolis`, under whatever name."""
    known = getattr(answer, "__globals__", {})
    names = getattr(getattr(answer, "__code__", None), "co_names", ())
    meant = [known.get(name, metropolis if name == "metropolis" else None) for name in names]
    if answer is metropolis or metropolis in meant:
        raise Wrong("metropolis does the work for you here: write the weights yourself.")


def check_matrix(what, matrix, right, graph):
    """Refuse a matrix that is not `right`, and say which rule it breaks."""
    if not isinstance(matrix, torch.Tensor) or matrix.shape != right.shape:
        shape = list(matrix.shape) if isinstance(matrix, torch.Tensor) else type(matrix).__name__
        raise Wrong(f"for {what}, a tensor {list(right.shape)} is wanted, not {shape}.")
    matrix = matrix.double()
    off_row = (matrix.sum(dim=1) - 1).abs()
    off_pair = (matrix - matrix.T).abs()
    row, (a, b) = int(off_row.argmax()), divmod(int(off_pair.argmax()), len(matrix))
    here = f"for {what},"
    if not off_row[row] < 1e-6:
        raise Wrong(f"{here} row {row} sums to {float(matrix[row].sum()):.6g}, not to 1.")
    if off_pair[a, b] > 1e-6:
        both = f"[{a}, {b}] is {matrix[a, b]:.4g} and [{b}, {a}] {matrix[b, a]:.4g}"
        raise Wrong(f"{here} {both}: a rank that gives more than it gets pulls the mean to itself.")
    for a, b in (matrix.abs() > 1e-9).nonzero().tolist():
        if a != b and b not in graph.neighbours[a]:
            raise Wrong(f"{here} ranks {a} and {b} do not talk, but [{a}, {b}] is not 0.")
    if (matrix < 0).any():
        raise Wrong(f"{here} a weight is below 0, so a round may widen the gap between two ranks.")
    if not torch.allclose(matrix, right, atol=1e-6):
        a, b = divmod(int((matrix - right).abs().argmax()), len(matrix))
        both = f"{float(right[a, b]):.4g}, not {float(matrix[a, b]):.4g}"
        raise Wrong(f"{here} the sums are right, but [{a}, {b}] should be {both}.")


def check_gossip_round(answer):
    for graph, weigh, n in (
        (ring_graph(4), metropolis, 5),
        (ODD, metropolis, 5),
        (star_graph(4), plain_means, 5),
        (Graph(1, ()), metropolis, 5),
        (star_graph(3), metropolis, LARGE),
    ):
        matrix, start = weigh(graph), starts(graph.ranks, n)
        outcomes, trace = on_ranks(mixed, graph.ranks, function(answer), start, matrix)
        right = matrix @ start
        for rank, (x, returned) in enumerate(outcomes):
            check_filled(x, returned, right[rank])
            if not torch.allclose(x, right[rank], atol=1e-9):
                what = instead(x, rank, start, matrix)
                raise Wrong(f"on {graph.ranks} ranks, rank {rank} holds {what}.")
        check_messages(trace, answer, graph, 8 * n)
    return "each rank sent its x once to each neighbour, at any size, and to nobody else."


def plain_means(graph):
    """The matrix of plain means over a rank and its neighbours: rows sum to one, columns do not."""
    matrix = torch.eye(graph.ranks, dtype=torch.float64)
    for rank, near in enumerate(graph.neighbours):
        matrix[rank, [rank, *near]] = 1 / (1 + len(near))
    return matrix


def mixed(comm, answer, start, *args):
    """This rank's row of `start` after the answer, and what the answer returned.

    The answer gets it as a matrix of one column, since x may have any shape.
    """
    x = start[comm.rank].clone()[:, None]
    returned = answer(comm, x, *args)
    return x[:, 0], returned.flatten() if isinstance(returned, torch.Tensor) else returned


def starts(ranks: int, n: int) -> torch.Tensor:
    """What the ranks hold before, float64 [ranks, n]: far from zero and from one another."""
    random = torch.rand(ranks, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return random + 1 + torch.arange(ranks)[:, None] ** 2


def instead(x, rank: int, start, matrix) -> str:
    """In words, what `x` of `rank` is and should not be, after one round."""
    near, own = [r for r in matrix[rank].nonzero().flatten().tolist() if r != rank], start[rank]
    right, mine = matrix[rank] @ start, matrix[rank, rank]
    guesses = {
        "the weighted sum of its neighbours without its own part": right - mine * own,
        "the plain mean of itself and its neighbours": start[[rank, *near]].mean(dim=0),
        "the mean of all ranks": start.mean(dim=0),
        "the sum of itself and its neighbours": start[[rank, *near]].sum(dim=0),
        f"the mixture by column {rank} of the matrix: its weights are in row {rank}": (
            matrix[:, rank] @ start
        ),
    }
    like = (words for words, guess in guesses.items() if torch.allclose(x, guess, atol=1e-9))
    plain = held(x, rank, list(start))
    other = "another mixture: all have to send what they held before the round"
    return next(like, other if plain == "a mixture" else plain)


def check_messages(trace, answer, graph, nbytes: int, rounds: int = 1):
    """Refuse all but `rounds` messages of `nbytes` from each rank to each of its neighbours."""
    if graph.edges and not trace.messages:
        raise Wrong("no message was waited for: an isend is over when its wait() returns.")
    only_messages(trace, answer)
    where = f"on {graph.ranks} ranks,"
    for rank, near in enumerate(graph.neighbours):
        sent = [message for message in trace.messages if message.src == rank]
        for message in sent:
            if message.dst not in near:
                raise Wrong(f"{where} rank {rank} sends to rank {message.dst}: no neighbour.")
        if trace.sent_bytes[rank] > rounds * len(near) * nbytes:
            times = trace.sent_bytes[rank] / nbytes
            enough = f"where {rounds * len(near)} times are enough"
            raise Wrong(f"{where} rank {rank} sends {times:.4g} times the bytes of x {enough}.")
        if len(sent) != rounds * len(near):
            raise Wrong(
                f"{where} rank {rank} has {len(near)} neighbours, and {len(sent)} of its messages "
                f"were waited for, not {rounds * len(near)}."
            )


def gossip_round(comm, x, matrix):
    """x [any shape] becomes the mixture that row comm.rank of the matrix says, in place.

    The neighbours are exchanged with in the order of their ranks, so no two wait for each other.
    """
    row, before, heard = matrix[comm.rank].tolist(), x.clone(), torch.empty_like(x)
    x *= row[comm.rank]
    for other, weight in enumerate(row):
        if weight and other != comm.rank:
            comm.exchange(before, other, heard, other)
            x += weight * heard


def mean_that_fades(comm, x, graph, rounds):
    """Bring every rank's x nearer to the mean of all, round by round."""
    near, degrees = graph.neighbours[comm.rank], [len(each) for each in graph.neighbours]
    own = 1 / (1 + degrees[comm.rank])
    weights = [1 / (1 + max(degrees[comm.rank], degrees[other])) for other in near]
    for _ in range(rounds):
        heard = [torch.empty_like(x) for _ in near]
        for other, out in zip(near, heard):
            comm.exchange(x, other, out, other)
        x *= own
        for weight, out in zip(weights, heard):
            x += weight * out


def mean_by_gossip(comm, x, graph, rounds):
    """Bring every rank's `x` [any shape] nearer to the mean of all, round by round.

    Its own weight is what those of its neighbours leave, so that its row sums to one.
    Cost: degree messages of x's bytes a round.
    """
    near, degrees = graph.neighbours[comm.rank], [len(each) for each in graph.neighbours]
    weights = [1 / (1 + max(degrees[comm.rank], degrees[other])) for other in near]
    own = 1 - sum(weights)
    for _ in range(rounds):
        heard = [torch.empty_like(x) for _ in near]
        for other, out in zip(near, heard):
            comm.exchange(x, other, out, other)
        x *= own
        for weight, out in zip(weights, heard):
            x += weight * out


def check_mean_by_gossip(answer):
    for what, graph, rounds in (
        ("a ring of 4", ring_graph(4), 3),
        ("a star of 4", star_graph(4), 1),
        ("a tree of 5", ODD, 12),
        ("a single rank", Graph(1, ()), 2),
        ("a wheel of 5", wheel_graph(5), 6),
    ):
        where = f"on {what}, after {rounds} round{'s' * (rounds > 1)},"
        check_equals(where, answer, graph, rounds)
        start = starts(graph.ranks, 3)
        outcomes, trace = on_ranks(mixed, graph.ranks, answer, start, graph, rounds)
        ends = torch.stack([x for x, _ in outcomes])
        check_mean(where, start, ends)
        check_agreeing(where, start, ends, (1 - spectral_gap(metropolis(graph))) ** (rounds / 2))
        check_messages(trace, answer, graph, 24, rounds)
    return "the mean stays what it was, on every graph, while the ranks draw together."


def check_equals(where, answer, graph, rounds):
    """Refuse an answer that changes what all ranks agree on already."""
    ones = torch.ones(graph.ranks, 3, dtype=torch.float64)
    outcomes, _ = on_ranks(mixed, graph.ranks, function(answer), ones, graph, rounds)
    for rank, (x, _) in enumerate(outcomes):
        if not torch.allclose(x, ones[0], atol=1e-9):
            raise Wrong(
                f"{where} rank {rank} holds {float(x[0]):.4g} where all ranks began with 1: do "
                f"its weights sum to one?"
            )


def check_mean(where, start, ends):
    """Refuse ends with another mean than the start."""
    if not torch.allclose(start.mean(dim=0), ends.mean(dim=0), rtol=1e-9):
        share = float((ends.mean(dim=0) / start.mean(dim=0))[0])
        raise Wrong(
            f"{where} the mean is {share:.4g} times what it was: does each rank give a neighbour "
            "the weight that it gets from it?"
        )


def check_agreeing(where, start, ends, left: float):
    """Refuse ends that are farther from their mean than `left` of what the start was."""
    apart = (ends - ends.mean(dim=0)).norm() / max(float((start - start.mean(dim=0)).norm()), 1e-9)
    if apart > left + 1e-9:
        raise Wrong(f"{where} {float(apart):.3g} of the disagreement is left, not {left:.3g}.")


EXERCISES = [
    Exercise(
        "rounds_to_agree",
        f"the spectral gap of a graph is {GAP}: after how many rounds is the disagreement surely a "
        "thousandth of what it was, or less?",
        check_rounds_to_agree,
        (
            "a round leaves at most 1 - gap of the disagreement, the next one 1 - gap of that.",
            f"for which t is {1 - GAP} ** t no more than a thousandth?",
            "take the logarithm of both sides, and round up.",
        ),
        f"math.ceil(math.log({TOLERANCE}) / math.log(1 - {GAP})), which is 135. A rule of thumb: "
        "7 / gap rounds for a thousandth, since log(1000) is 6.9.",
    ),
    Exercise(
        "rounds_from_two",
        f"gossip on an unknown graph had left {MEASURED[0][1]} of the disagreement after "
        f"{MEASURED[0][0]} rounds and {MEASURED[1][1]} after {MEASURED[1][0]}: after how many "
        "rounds, counted from the start, do you predict a thousandth?",
        check_rounds_from_two,
        (
            "late rounds shrink the slowest pattern alone: each by the same factor, 1 - gap.",
            "20 rounds have left 0.12 / 0.30 = 0.4 of what there was, so one leaves 0.4 ** (1/20).",
            "from round 40 on: 0.12 * 0.4 ** (t / 20) = 0.001. Then add the 40.",
        ),
        "40 + 20 * math.log(0.001 / 0.12) / math.log(0.12 / 0.30), which is 144.5, so 145 rounds; "
        "the gap is 1 - 0.4 ** (1 / 20) = 0.045.",
    ),
    Exercise(
        "shortcuts",
        f"name shortcuts, pairs of ranks, that let a ring of {ROUND_TABLE} agree to a thousandth "
        f"in at most {ROUNDS} rounds, with no more than {NEIGHBOURS} neighbours for any rank.",
        check_shortcuts,
        (
            "every rank may have one neighbour more than on the ring.",
            "who is farthest from rank 0? A number needs as many rounds as there are hops.",
            "rank r and rank r + 8 sit opposite each other.",
        ),
        "[(r, r + 8) for r in range(8)] needs 44 rounds. [(r, (r + 5) % 16) for r in range(0, 16, "
        "2)], which leads to others' shortcuts faster, needs 19.  One shortcut alone makes it "
        "slower: its two ranks hand on less (1/4 instead of 1/3), all others go the old way.",
    ),
    Exercise(
        "mixing_matrix",
        "write mixing_matrix(graph): the Metropolis weights, a tensor [graph.ranks, graph.ranks]. "
        "graph.neighbours[a] lists the ranks that rank a talks to.",
        check_mixing_matrix,
        (
            "for an edge, a weight of 1 / (1 + the number of neighbours of whoever has more).",
            "fill in the edges first; then what is left of each row goes on the diagonal.",
            "torch.diag(1 - matrix.sum(dim=1)) is that diagonal as a matrix.",
        ),
        metropolis,
    ),
    Exercise(
        "gossip_round",
        "write gossip_round(comm, x, matrix): x becomes the weighted mean of its neighbours' x and "
        "its own, in place; row comm.rank of the matrix has the weights. One message to each "
        "neighbour, none to others, at any size.",
        check_gossip_round,
        (
            "a neighbour is where the row is not 0, yourself left out.",
            "if all ranks send first, nobody receives; comm.exchange does both at once.",
            "change x only when all neighbours have been sent what it was before.",
        ),
        gossip_round,
    ),
    Exercise(
        "mean_by_gossip",
        "find the bug in mean_by_gossip(comm, x, graph, rounds): on a ring the ranks draw near to "
        "their mean, on a star they draw near to zero. Repair it.",
        check_mean_by_gossip,
        (
            "take a star of 4, and add up the weights of rank 1: its own and that of the hub.",
            "on a ring all ranks have as many neighbours, so the two rules agree there.",
            "what the neighbours leave of one is a rank's own weight.",
        ),
        mean_by_gossip,
        given=mean_that_fades,
    ),
]
