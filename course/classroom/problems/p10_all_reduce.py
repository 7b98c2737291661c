"""Exercises of notebook 10: when a ring is worth it, a time predicted from two that were measured,
recursive doubling for any number of ranks, a ring that sends no byte too many, a sum that spares
the network between machines, a bug."""

import math

import torch

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close
from course.classroom.patterns import check_ring, only_messages
from course.classroom.problems import Exercise, Wrong
from course.cluster.hardware import FREE, Cable
from course.collectives import all_reduce, broadcast, reduce
from course.collectives.ring import ring_steps
from course.comm.errors import listed
from course.worlds import RankError, run, simulated

P, ALPHA_S, BYTES_PER_S = 32, 20e-6, 1.25e9  # ranks, latency and rate of the crossover
DIGIT = 8  # each rank's numbers are near a power of it, so that a sum tells its terms
STEP_S = 2.0  # on the network that times an answer: one second of latency, one for all of x
PARTS = ("reduce", "broadcast", "gather", "scatter", "all_gather", "reduce_scatter", "all_reduce")


# When is the ring worth it?


def crossover(rounds: float, steps: float) -> float:
    """Bytes at which rounds (alpha + N beta) and steps alpha + 2N(p-1)/p beta are equal."""
    return ALPHA_S * BYTES_PER_S * (steps - rounds) / (rounds - 2 * (P - 1) / P)


def check_ring_beats_doubling(answer):
    nbytes, rounds, round_trip = number(answer), math.log2(P), 2 * (P - 1)
    right = crossover(rounds, round_trip)
    for factor, sentence in (
        (1, None),
        (1e-6, "bytes are wanted, not megabytes."),
        (1e-3, "bytes are wanted, not kilobytes."),
        (8, "bytes are wanted, and that is bits: 10 Gb/s are 1.25 GB/s."),
        (1 / 8, "that is 8 times too few: 10 Gb/s are 1.25 GB/s, so bits became bytes twice."),
        (1 / 4, "bytes are wanted, and that is numbers of 4 bytes."),
        (crossover(rounds, P - 1) / right, "the ring goes round twice: 2(p - 1) steps."),
        (crossover(rounds, 2 * rounds) / right, "that is halving-doubling's 2 lg p steps."),
        (ALPHA_S * BYTES_PER_S / right, "that is alpha / beta: now count steps and bytes."),
    ):
        if sentence and close(nbytes, right * factor, 0.01):
            raise Wrong(sentence)
    if not close(nbytes, right, 0.02):
        doubling_s = rounds * (ALPHA_S + nbytes / BYTES_PER_S)
        ring_s = round_trip * (ALPHA_S + nbytes / P / BYTES_PER_S)
        raise Wrong(
            f"with {nbytes:,.4g} bytes doubling takes {doubling_s * 1e6:.4g} µs and the ring "
            f"{ring_s * 1e6:.4g} µs: they should be equal."
        )
    return f"57 alpha = 3.0625 N beta, so N = 18.6 alpha / beta, {right:,.0f} bytes."


# A time predicted from two that were measured

BENCH_FACTOR, ASKED_BYTES = 2 * 7 / 8, 500e3  # of a ring on 8 ranks: 8 bytes took 0.21 ms, and
ALPHA_BENCH_S = 0.21e-3 / 14
BETA_BENCH_S = (28.21e-3 - 0.21e-3) / (BENCH_FACTOR * 80e6)  # 80 MB took 28.21 ms


def check_halving_doubling_ms(answer):
    took_ms, right_ms = number(answer), timed_ms(6)
    for slip_ms, sentence in SLIPS_MS:
        if close(took_ms, slip_ms, 0.01):
            raise Wrong(sentence)
    if not close(took_ms, right_ms, 0.01):
        left_ms = took_ms - 1e3 * 6 * ALPHA_BENCH_S
        raise Wrong(
            f"with {took_ms:.4g} ms, after 6 latencies of 15 µs {left_ms:.3g} ms would be left "
            "for the bytes."
        )
    return (
        "alpha = 0.21 ms / 14 = 15 µs, beta = 28 ms / (1.75 * 80 MB) = 0.2 ns a byte: "
        f"{right_ms:.3g} ms, where the ring takes {timed_ms(14):.3g} ms. Choose halving-doubling."
    )


def timed_ms(alphas: float, factor=BENCH_FACTOR, beta=BETA_BENCH_S) -> float:
    """Milliseconds of so many latencies, and `factor` times the bytes that are asked for."""
    return 1e3 * (alphas * ALPHA_BENCH_S + factor * ASKED_BYTES * beta)


SLIPS_MS = (
    (timed_ms(6) / 1e3, "milliseconds are wanted, not seconds."),
    (timed_ms(6) * 1e3, "milliseconds are wanted, not microseconds."),
    (timed_ms(14), "that is the ring's time: halving-doubling has 2 lg p steps."),
    (timed_ms(3), "halving-doubling goes there and back: 2 lg p steps."),
    (timed_ms(3, 3), "that is recursive doubling; halving-doubling sends 2(p - 1)/p of x."),
    (timed_ms(6 * 14), "the 0.21 ms are 2(p - 1) = 14 latencies of the ring, not one."),
    (timed_ms(6 * 2), "the ring goes round twice: the 0.21 ms are 14 latencies, not 7."),
    (timed_ms(6, beta=BENCH_FACTOR * BETA_BENCH_S),
     "of 80 MB the ring sends 2(p - 1)/p from each rank: beta is smaller."),
    (timed_ms(0), "these are the bytes alone: there are 2 lg p latencies, too."),
    (timed_ms(6, 0), "these are the latencies alone: there are bytes, too."),
)  # fmt: skip


# What a sum is made of


def summed(comm, answer, elements, spread=1e-6):
    """This rank's x before and after the answer, and what it returned."""
    noise = torch.rand(elements, dtype=torch.float64)  # its last bits tell replicas apart
    x = float(DIGIT) ** comm.rank * (1 + spread * noise)
    before = x.clone()
    return before, x, answer(comm, x)


def check_sums(where, outcomes):
    """Refuse what is not everyone's sum with the same bits on every rank; say what it is made of.

    `outcomes` [(before, after, returned) of each rank].
    """
    before, after, returned = zip(*outcomes)
    total = torch.stack(before).sum(0)
    for rank, x in enumerate(after):
        wrong = ((x - total).abs() > 1e-12 * total).nonzero()
        if len(wrong) and returned[rank] is not None and close(returned[rank], total, 1e-9):
            raise Wrong("x itself has to change: do not return another tensor.")
        if len(wrong):
            k = wrong[0].item()
            told = terms(x[k].item(), len(before), rank)
            raise Wrong(f"{where}, element {k} of rank {rank} {told}.")
    for rank, x in enumerate(after):
        if not torch.equal(x, after[0]):
            raise Wrong(f"{where}, the sums of ranks 0 and {rank} differ in their last bits.")


def terms(value: float, ranks: int, own: int) -> str:
    """In words, what a sum of powers of DIGIT (and noise) is made of."""
    if abs(value * ranks - sum(DIGIT**r for r in range(ranks))) < 0.1:
        return "is the mean, not the sum"
    counts = [round(value) // DIGIT**rank % DIGIT for rank in range(ranks)]
    if counts == [int(rank == own) for rank in range(ranks)]:
        return "is its own number still"
    missing = [rank for rank, count in enumerate(counts) if not count]
    if missing:
        return f"lacks the number of {listed(missing)}"
    many = [rank for rank, count in enumerate(counts) if count > 1]
    if many:
        return f"has the number of {listed(many)} more than once"
    return "is the sum of another element"


def check_on(answer, cases, **options):
    """Run an answer for each of `cases` [(ranks, elements)], refuse a wrong sum, and give the
    ranks, elements and trace of a right one.  What was right on two ranks only is named as such."""
    right_on_two = False
    for ranks, elements in cases:
        where = f"on {ranks} ranks"
        try:
            outcomes, trace = on_ranks(summed, ranks, function(answer), elements, **options)
        except RankError as trouble:
            if right_on_two:
                trouble.add_note("it is right on 2 ranks only")
            raise
        where = f"right on 2 ranks only: {where}" if right_on_two else where
        check_sums(where, outcomes)
        right_on_two = ranks == 2 or right_on_two
        yield ranks, elements, trace


# Recursive doubling


def doubling_of_powers_of_two(comm, x):
    """Every rank's x [any shape] becomes the sum of all: partners 1, 2, 4, ... ranks away."""
    theirs, distance = torch.empty_like(x), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        comm.exchange(x, partner, theirs, partner)
        x += theirs
        distance *= 2


def any_number_of_ranks(comm, x):
    """Make `x` [any shape] the sum of all ranks' x, for any number of ranks p.

    The ranks beyond the largest power of two give their x to a partner, and get the sum from it.
    Cost: lg p steps of x's bytes, floor(lg p) + 2 if p is no power of two.
    """
    inner = 1 << (comm.size.bit_length() - 1)
    if comm.rank >= inner:
        comm.send(x, comm.rank - inner)
        return comm.recv(x, comm.rank - inner)
    theirs, guest = torch.empty_like(x), comm.rank + inner
    if guest < comm.size:
        comm.recv(theirs, guest)
        x += theirs
    distance = 1
    while distance < inner:
        comm.exchange(x, comm.rank ^ distance, theirs, comm.rank ^ distance)
        x += theirs
        distance *= 2
    if guest < comm.size:
        comm.send(x, guest)
    return None


def check_any_number_of_ranks(answer):
    for _, _, trace in check_on(answer, ((3, 5), (4, 5), (1, 5), (5, 0), (6, 5))):
        only_messages(trace, answer)
    for ranks in (8, 6, 7):
        steps = imagined_steps(answer, ranks, elements=ranks * 7)
        rounds = ranks.bit_length() - 1
        enough = rounds + 2 * (ranks != 1 << rounds)
        if steps >= enough + 1:  # a message that comes early may share a cable for a while
            raise Wrong(
                f"the sum is right, but {ranks} imagined ranks took as long as {whole(steps)} "
                f"messages of x one after another, where {enough} are enough."
            )
    return "lg p steps for a power of two, two more for other numbers: on 1 to 8 ranks."


def whole(steps: float) -> str:
    """A number of steps in words: messages that meet on a cable may take some and a half."""
    least = int(steps + 0.01)
    return f"{least}" if steps - least < 0.01 else f"{least} to {least + 1}"


def imagined_steps(answer, ranks, elements) -> float:
    """How long an answer takes on one imagined switch, in steps of one message of all of x."""
    from course.cluster.fabric import one_switch  # here: no rank has use for networkx, 0.3 s

    cable = Cable("a second", STEP_S / 4, elements * 8 / (STEP_S / 2), "made up")
    world = simulated(one_switch(ranks, FREE, cable))
    check_sums(f"on {ranks} ranks", run(summed, ranks, answer, elements, on=world))
    return world.report.seconds / STEP_S


# The ring


def sum_round_the_ring(comm, x):
    """Make `x` [n] the sum of all ranks' x, in chunks that travel round the ring twice.

    Cost: 2(p - 1) steps, 2(p - 1)n elements from all ranks together.
    """
    chunks = x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in ring_steps(comm.size, comm.rank):
        landing = torch.empty_like(chunks[step.receive])
        comm.exchange(chunks[step.send], right, landing, left)
        chunks[step.receive].copy_(chunks[step.receive] + landing if step.add else landing)


def check_sum_round_the_ring(answer):
    for ranks, elements, trace in check_on(answer, RING_CASES):
        only_messages(trace, answer)
        check_ring_bytes(ranks, elements, trace)
        if ranks > 2:  # two may as well exchange all of x once
            check_ring(trace, 2 * (ranks - 1))
    return "2(p - 1) messages a rank, and no more than 2(p - 1)N bytes in all, on 1 to 5 ranks."


RING_CASES = ((2, 12), (4, 12), (3, 12), (1, 5), (4, 10), (5, 3))


def check_ring_bytes(ranks, elements, trace):
    """Refuse more bytes than 2N(p - 1)/p from a rank, or than 2N(p - 1) from all."""
    nbytes, share = 8 * elements, 2 * (ranks - 1) / ranks
    for rank, sent in enumerate(trace.sent_bytes):
        if sent > 2 * (ranks - 1) * 8 * -(-elements // ranks):
            raise Wrong(
                f"the sum is right, but on {ranks} ranks, rank {rank} sent {sent / nbytes:.3g} "
                f"times the bytes of x, where 2(p - 1)/p = {share:.3g} are enough."
            )
    if sum(trace.sent_bytes) > 2 * (ranks - 1) * nbytes:
        raise Wrong(
            f"the sum is right, but {ranks} ranks with {elements} elements sent "
            f"{sum(trace.sent_bytes):,} bytes, where {2 * (ranks - 1) * nbytes:,} are enough: "
            f"chunks may differ in length."
        )


# Between machines


def sum_over_nodes(comm, x):
    """Make `x` [any shape] the sum of all ranks' x, whatever rank is on whatever node.

    Cost: 2(M - 1) times x's bytes between M nodes, in all.
    """
    home = comm.split(comm.node)
    leaders = comm.split(0 if home.rank == 0 else None)
    reduce(home, x)
    if leaders:
        all_reduce(leaders, x)
    broadcast(home, x)


def check_sum_over_nodes(answer):
    for nodes in ([0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 0, 1], [0, 0], [0, 1, 2]):
        cases = [(len(nodes), 12)]
        for _, _, trace in check_on(answer, cases, nodes=nodes):
            only_messages(trace, answer, allowed=PARTS)
            if any("by hierarchical" in event.call for event in trace.events):
                raise Wrong("all_reduce with algorithm='hierarchical' does the work for you here.")
            check_between(nodes, trace, 12 * 8)
    return "2(M - 1) times the bytes of x between M nodes, and no more, however they are filled."


def check_between(nodes, trace, nbytes):
    """Refuse more than 2(M - 1) times the bytes of x between M nodes."""
    out = sum(m.bytes for m in trace.messages if nodes[m.src] != nodes[m.dst])
    enough = 2 * (len(set(nodes)) - 1)
    if out > enough * nbytes:
        raise Wrong(
            f"the sum is right, but with ranks on nodes {nodes}, {out / nbytes:.3g} times the "
            f"bytes of x went between nodes, where {enough} are enough."
        )


# The bug


def pass_the_sums_on_wrongly(comm, x):
    """Every rank's x [n] becomes the sum of all, round the ring."""
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):  # add
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p - 1):  # pass on
        mine, theirs = chunks[(left - i) % p], chunks[(left - 1 - i) % p]
        comm.exchange(mine, right, theirs, left)


def pass_the_sums_on(comm, x):
    """Every rank's x [n] becomes the sum of all, round the ring.

    After the first loop, rank r has added up chunk r + 1: that of its right neighbour.
    Cost: 2(p - 1) steps, 2(p - 1)n elements from all ranks together.
    """
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):  # add
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p - 1):  # pass on
        mine, theirs = chunks[(right - i) % p], chunks[(comm.rank - i) % p]
        comm.exchange(mine, right, theirs, left)


EXERCISES = [
    Exercise(
        "ring_beats_doubling",
        f"{P} ranks, alpha = 20 µs, 10 Gb/s, adding takes no time: from how many bytes on is the "
        "ring faster than recursive doubling?",
        check_ring_beats_doubling,
        (
            "write down both times: steps times alpha, plus bytes on the way times beta.",
            "doubling takes lg p (alpha + N beta), the ring 2(p - 1) alpha + 2N(p - 1)/p beta.",
            "set them equal and solve for N; beta is 1 / 1.25e9 seconds a byte.",
        ),
        "(2(p - 1) - lg p) alpha = (lg p - 2(p - 1)/p) N beta; for p = 32, 57 alpha = 3.0625 N "
        "beta: N = 57 / 3.0625 * 20e-6 * 1.25e9 = 465,306 bytes.",
    ),
    Exercise(
        "halving_doubling_ms",
        "a ring on 8 ranks took 0.21 ms for 8 bytes and 28.21 ms for 80 MB: how many milliseconds "
        "should halving-doubling take for 500 kB on the same cluster?",
        check_halving_doubling_ms,
        (
            "write down the ring's time with p = 8: how many alpha, how many N beta?",
            "8 bytes cost nothing beside their latencies: what is alpha? Then 80 MB give beta.",
            "halving-doubling takes 2 lg p alpha + 2(p - 1)/p N beta, with lg 8 = 3.",
        ),
        "14 alpha = 0.21 ms, so alpha = 15 µs; 1.75 * 80 MB * beta = 28 ms, so beta = 0.2 ns a "
        "byte; 6 * 15 µs + 1.75 * 500 kB * 0.2 ns = 90 µs + 175 µs = 0.265 ms.",
    ),
    Exercise(
        "any_number_of_ranks",
        "change any_number_of_ranks(comm, x), which works for 2, 4, 8, ... ranks, so that it works "
        "for any number, in at most floor(lg p) + 2 steps, and in lg p where it did before.",
        check_any_number_of_ranks,
        (
            "let q be the largest power of two that is not above p: what if q ranks do the work?",
            "a rank from q on first gives its x to rank - q, which adds it to its own.",
            "in the end it gets the sum back from there.",
        ),
        any_number_of_ranks,
        given=doubling_of_powers_of_two,
    ),
    Exercise(
        "sum_round_the_ring",
        "write sum_round_the_ring(comm, x): every rank's x [n] becomes the sum of all, in place, "
        "in 2(p - 1) messages from each rank to its right neighbour, of 2(p - 1)n elements "
        "from all ranks together, for any n and any number of ranks p.",
        check_sum_round_the_ring,
        (
            "x.tensor_split(comm.size) gives p chunks as views of x; some may be empty.",
            "step i: send chunk (rank - i) % p, receive and add (rank - i - 1) % p, p - 1 times.",
            "then send (rank + 1 - i) % p and receive (rank - i) % p in place of your own.",
        ),
        (ring_steps, sum_round_the_ring),
    ),
    Exercise(
        "sum_over_nodes",
        "write sum_over_nodes(comm, x): every rank's x becomes the sum of all, in place, while no "
        "more than 2(M - 1) times the bytes of x go between M nodes. comm.node is the node of a "
        "rank; comm.split and the collectives are allowed.",
        check_sum_over_nodes,
        (
            "first add up within each node, so that only one vector a node has to travel.",
            "comm.split(comm.node) is the communicator of one's own node.",
            "its rank 0 is the leader: a second split makes a communicator of all leaders.",
        ),
        sum_over_nodes,
    ),
    Exercise(
        "pass_the_sums_on",
        "find the bug in pass_the_sums_on(comm, x), which is right on 2 ranks, and repair it.",
        check_sum_round_the_ring,
        (
            "on two ranks, left and right neighbour are the same: which line takes one for the "
            "other?",
            "after the first loop, which chunk of rank 0 is complete on 3 ranks?",
            "rank r begins to pass on chunk r + 1, and receives chunk r.",
        ),
        pass_the_sums_on,
        given=pass_the_sums_on_wrongly,
    ),
]
