"""Exercises of notebook 09: count the steps of a tree, write a tree and a ring, agree on a sum to
the last bit, repair a ring that hangs."""

import math

import torch

from course.classroom.answers import EMPTY, check_filled, function, held, number, on_ranks
from course.classroom.patterns import check_ring, check_tree, only_messages
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_gather, broadcast, reduce
from course.collectives.tree import binomial_tree

MANY = 100  # ranks of the tree whose steps are counted
LARGE = 2**18  # elements: 2 MB, more than a socket holds


def check_broadcast_steps(answer):
    steps, right = number(answer), math.ceil(math.log2(MANY))
    if steps in (MANY - 1, MANY):
        raise Wrong(f"{MANY - 1} messages, yes, but in one step many ranks send at once.")
    if steps != round(steps):
        raise Wrong(f"a step is whole: {steps:.4g} of them cannot be.")
    if steps == MANY / 2:
        raise Wrong("the ranks that have x double in each step; they do not grow by two.")
    if 0 <= steps < right:
        raise Wrong(f"after {steps:.0f} steps at most {2 ** int(steps)} ranks have x.")
    if steps != right:
        raise Wrong(f"fewer than {steps:.4g} steps are enough for {MANY} ranks.")
    return f"after {right - 1} steps {2 ** (right - 1)} ranks have x, after {right} all {MANY}."


def check_tree_broadcast(answer):
    for ranks, root in ((4, 0), (1, 0), (2, 1), (5, 3), (3, 2)):
        where = f"with {ranks} ranks and root {root}"
        outcomes, trace = on_ranks(changed, ranks, function(answer), [15] * ranks, root)
        before, after, returned = zip(*outcomes)
        for rank, x in enumerate(after):
            check_filled(x, returned[rank], before[root])
            if not torch.equal(x, before[root]):
                raise Wrong(f"{where}, rank {rank} holds {held(x, rank, before)}.")
        only_messages(trace, answer)
        check_tree(where, trace)
    return "p - 1 messages in ceil(lg p) steps, for any root and for 1 to 5 ranks."


def changed(comm, answer, lengths, *args):
    """This rank's random x [of its length] before and after, and what the answer returned."""
    x = torch.randn(lengths[comm.rank])
    before = x.clone()
    return before, x, answer(comm, x, *args)


def check_ring_all_gather(answer):
    for ranks in (4, 1, 2, 3, 5):
        lengths = [3] * ranks if ranks == 4 else list(range(1, ranks + 1))
        outcomes, trace = on_ranks(gathered, ranks, function(answer), lengths)
        before, after, outs = zip(*outcomes)
        for rank in range(ranks):
            check_kept(rank, after[rank], before[rank])
            for source, out in enumerate(outs[rank]):
                if not torch.equal(out, before[source]):
                    what = held(out, rank, before)
                    raise Wrong(f"on {ranks} ranks, outs[{source}] of rank {rank} holds {what}.")
        only_messages(trace, answer)
        check_ring(trace, ranks - 1)
    return "each rank passed p - 1 parts to its right neighbour, on 1 to 5 ranks."


def gathered(comm, answer, lengths):
    """This rank's part before and after, and its outs."""
    x, outs = torch.rand(lengths[comm.rank]), [torch.full((n,), EMPTY) for n in lengths]
    before = x.clone()
    answer(comm, outs, x)
    return before, x, outs


def check_kept(rank, after, before):
    if not torch.equal(after, before):
        raise Wrong(f"rank {rank}'s own x was changed.")


def sum_everywhere(comm, x):
    """Make `x` [any shape] the sum of all ranks' x, the same bits on each.

    Cost: 2(p - 1) messages of x's bytes in all.
    """
    reduce(comm, x)
    broadcast(comm, x)


def check_sum_everywhere(answer):
    for ranks in (4, 1, 3):
        outcomes, trace = on_ranks(changed, ranks, function(answer), [1001] * ranks)
        before, after, returned = zip(*outcomes)
        for rank, x in enumerate(after):
            check_sum(rank, x, before, returned[rank])
        for rank, x in enumerate(after):
            if not torch.equal(x, after[0]):
                raise Wrong(
                    f"the sum of rank {rank} and that of rank 0 differ in their last bits: the "
                    f"order of adding must be the same, or one rank must add for all."
                )
        check_sum_cost(ranks, trace, answer)
    return "one sum, to the last bit, on 1, 3 and 4 ranks."


def check_sum(rank, x, everyones, returned):
    """Refuse an x that is not near the sum, and say what it is instead."""
    total, own = torch.stack(everyones).sum(0), everyones[rank]
    if torch.allclose(x, total, atol=1e-4):
        return
    check_filled(x, returned, total)
    guesses = {
        "the mean, not the sum": total / len(everyones),
        "its own x still": own,
        "the sum with its own x twice": total + own,
        "the sum without its own x": total - own,
    }
    like = (words for words, guess in guesses.items() if torch.allclose(x, guess, atol=1e-4))
    what = next(like, "another number")
    raise Wrong(f"on {len(everyones)} ranks, rank {rank} holds {what}.")


def check_sum_cost(ranks, trace, answer):
    """Refuse all_reduce itself, and more bytes than a tree takes up and down."""
    parts = ("reduce", "broadcast", "gather", "scatter", "all_gather", "reduce_scatter")
    only_messages(trace, answer, allowed=parts)
    vectors, enough = sum(trace.sent_bytes) / (4 * 1001), 2 * (ranks - 1)
    if vectors > enough:
        raise Wrong(
            f"the sum is right, but {ranks} ranks sent {vectors:.4g} times the bytes of x where "
            f"{enough} times are enough."
        )


def pass_right_hangs(comm, x, out):
    """Give x to the right neighbour, take out from the left one."""
    comm.send(x, (comm.rank + 1) % comm.size)
    comm.recv(out, (comm.rank - 1) % comm.size)


def pass_right(comm, x, out):
    """Give `x` to the right neighbour, take `out` from the left one, whatever their size.

    Cost: 1 step.
    """
    comm.exchange(x, (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)


def check_pass_right(answer):
    for ranks, elements in ((4, 3), (2, 3), (3, LARGE)):
        outcomes, trace = on_ranks(passed, ranks, function(answer), elements)
        before, after, out = zip(*outcomes)
        for rank in range(ranks):
            check_kept(rank, after[rank], before[rank])
            left = (rank - 1) % ranks
            if not torch.equal(out[rank], before[left]):
                what = held(out[rank], rank, before)
                raise Wrong(f"out of rank {rank} holds {what}; its left neighbour is rank {left}.")
        check_ring(trace, 1)
    return "no rank relies on room for a message that nobody has asked for."


def passed(comm, answer, elements):
    """This rank's x before and after, and what came from the left."""
    x, out = torch.rand(elements, dtype=torch.float64), torch.full((elements,), EMPTY).double()
    before = x.clone()
    answer(comm, x, out)
    return before, x, out


EXERCISES = [
    Exercise(
        "broadcast_steps",
        f"one of {MANY} ranks has x, all need it, and a rank can send one message in a step: how "
        "many steps does the fastest broadcast take?",
        check_broadcast_steps,
        (
            "after the first step two ranks have x, and both can send in the second.",
            "the ranks that have x double in each step: 1, 2, 4, 8, ...",
            f"how often must 1 be doubled until it is at least {MANY}?",
        ),
        f"math.ceil(math.log2({MANY})), which is 7: the ranks that have x double in each step, and "
        f"2 ** 6 = 64 < {MANY} <= 128 = 2 ** 7.",
    ),
    Exercise(
        "tree_broadcast",
        "write tree_broadcast(comm, x, root): every rank's x becomes the root's x, in place, with "
        "p - 1 messages in ceil(lg p) steps, for any number of ranks p and any root.",
        check_tree_broadcast,
        (
            "write it for root 0 first: in step s, ranks 0 to 2**s - 1 have x, and each sends it "
            "to the rank 2**s further.",
            "when p is no power of two, some of those ranks do not exist: skip them.",
            "for another root, number the ranks from it: (comm.rank - root) % comm.size.",
        ),
        (binomial_tree, broadcast),
    ),
    Exercise(
        "ring_all_gather",
        "write ring_all_gather(comm, outs, x): outs[r] becomes the x of rank r on every rank, for "
        "parts of different lengths. Send to the right neighbour only, p - 1 messages a rank.",
        check_ring_all_gather,
        (
            "begin with outs[comm.rank]; then pass on to the right what came from the left.",
            "in step s, rank r sends the part of rank r - s and receives that of rank r - s - 1.",
            "comm.exchange(outs[mine], right, outs[theirs], left) sends and receives at once.",
        ),
        all_gather,
    ),
    Exercise(
        "sum_everywhere",
        "write sum_everywhere(comm, x): every rank's x becomes the sum of all, in place and with "
        "the same bits on each, for 2 (p - 1) times the bytes of x in all. All of notebook 09 is "
        "allowed, all_reduce is not.",
        check_sum_everywhere,
        (
            "(a + b) + c and a + (b + c) can differ in the last bit.",
            "if one rank adds and the others copy, nothing can differ.",
            "reduce to a root, then broadcast from it.",
        ),
        sum_everywhere,
    ),
    Exercise(
        "pass_right",
        "find the bug in pass_right(comm, x, out), which hangs, and repair it: x goes to the right "
        "neighbour, out comes from the left one, at any size, on two ranks and more.",
        check_pass_right,
        (
            "which line is every rank in when it hangs?",
            "a send may wait until its receiver has asked for the message; who asks first?",
            "let one rank receive first, or let comm.exchange do both at once.",
        ),
        pass_right,
        given=pass_right_hangs,
    ),
]
