"""Exercises of notebook 09: count the steps of a tree, choose collectives, write a tree and a ring,
agree on a sum to the last bit, find the size at which a tree becomes too slow, repair a ring that
hangs."""

import math

import torch

from course.classroom.answers import EMPTY, check_filled, function, held, number, on_ranks
from course.classroom.comparison import close, refuse
from course.classroom.patterns import check_ring, check_tree, only_messages
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_gather, broadcast, reduce_scatter
from course.collectives.tree import binomial_tree

MANY = 100  # ranks of the tree whose steps are counted
LARGE = 2**18  # elements: 2 MB, more than a socket holds
ELEMENTS = 1001  # of the vector that is added up: no number of ranks divides it

JOBS = {  # collective: what is needed where it is the right one
    "broadcast": "every rank needs all that rank 0 has",
    "scatter": "each rank needs one part of what rank 0 has",
    "reduce": "only rank 0 needs the sum",
    "reduce_scatter": "each rank needs the sum, but only of its own part",
    "all_gather": "every rank needs the parts of all, and nothing is added up",
    "all_to_all": "each rank has another part for every other rank",
}
GIVES = {
    "broadcast": "every rank has all that rank 0 had",
    "scatter": "each rank has one part of what rank 0 had",
    "gather": "only rank 0 has the parts of all",
    "all_gather": "every rank has the parts of all, one beside the other",
    "reduce": "only rank 0 has the sum",
    "reduce_scatter": "each rank has one part of the sum",
    "all_to_all": "each rank has one part from every rank, and nothing is added up",
    "all_reduce": "every rank has the whole sum",
}
PING_PONG = ((8, 20e-6), (80_000_000, 64.02e-3))  # bytes of a message, seconds


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


def check_choose_collectives(answer):
    said = answer.split(",") if isinstance(answer, str) else list(answer)
    if len(said) != len(JOBS):
        raise Wrong(f"{len(JOBS)} names are wanted, one for each job, not {len(said)}.")
    for letter, each, right in zip("abcdef", said, JOBS, strict=True):
        said_of_it = letters(getattr(each, "__name__", str(each)))
        name = next((name for name in GIVES if letters(name) == said_of_it), None)
        if name == right:
            continue
        if name is None:
            raise Wrong(f"({letter}): none of the eight is called {each!r:.30}.")
        raise Wrong(f"({letter}): after {name}, {GIVES[name]}; here {JOBS[right]}.")
    return "each job has the collective that gives every rank what it needs, and no more."


def letters(name: str) -> str:
    """A name without what people write between its words: all_gather, All-gather, allgather."""
    return "".join(filter(str.isalpha, name.lower()))


def check_tree_broadcast(answer):
    for ranks, root in ((4, 0), (1, 0), (2, 1), (5, 3), (3, 2), (7, 2)):
        where = f"with {ranks} ranks and root {root}"
        outcomes, trace = on_ranks(changed, ranks, function(answer), [15] * ranks, root)
        before, after, returned = zip(*outcomes)
        for rank, x in enumerate(after):
            check_filled(x, returned[rank], before[root])
            if not torch.equal(x, before[root]):
                raise Wrong(f"{where}, rank {rank} holds {held(x, rank, before)}.")
        only_messages(trace, answer)
        check_tree(where, trace)
    return "p - 1 messages in ceil(lg p) steps, for any root and for up to 7 ranks."


def changed(comm, answer, lengths, *args):
    """This rank's random x [of its length] before and after, and what the answer returned."""
    x = torch.randn(lengths[comm.rank])
    before = x.clone()
    return before, x, answer(comm, x, *args)


def check_ring_all_gather(answer):
    for ranks in (4, 1, 2, 3, 5):
        lengths = [3] * ranks if ranks == 4 else list(range(1, ranks + 1))
        outcomes, trace = on_ranks(gathered, ranks, function(answer), lengths)
        before, after, outs, others = zip(*outcomes)
        for rank in range(ranks):
            check_kept(rank, after[rank], before[rank])
            check_same_tensors(others[rank])
            for source, out in enumerate(outs[rank]):
                if not torch.equal(out, before[source]):
                    what = held(out, rank, before)
                    raise Wrong(f"on {ranks} ranks, outs[{source}] of rank {rank} holds {what}.")
        only_messages(trace, answer)
        check_ring(trace, ranks - 1)
    return "each rank passed p - 1 parts to its right neighbour, on 1 to 5 ranks."


def gathered(comm, answer, lengths):
    """This rank's part before and after, its outs, and which of them it has put others in for."""
    x, whole = torch.rand(lengths[comm.rank]), torch.full((sum(lengths),), EMPTY)
    before, given = x.clone(), list(whole.split(lengths))
    outs = list(given)
    answer(comm, outs, x)
    others = [r for r, (out, own) in enumerate(zip(outs, given, strict=False)) if out is not own]
    return before, x, given, others


def check_same_tensors(others):
    """Refuse an answer that has put other tensors into the list."""
    if others:
        name = f"outs[{others[0]}]"
        raise Wrong(
            f"{name} = … puts another tensor into your list, and the caller's stays as it was: "
            f"write into the tensor that is there, with {name}.copy_(…)."
        )


def check_kept(rank, after, before):
    if not torch.equal(after, before):
        raise Wrong(f"rank {rank}'s own x was changed.")


def sum_everywhere(comm, x):
    """Make `x` [n] the sum of all ranks' x, the same bits on each.

    Cost: 2(p - 1) steps; a rank sends 2(p - 1)/p times the bytes of x, and receives as much.
    """
    parts = list(x.tensor_split(comm.size))
    mine = torch.empty_like(parts[comm.rank])
    reduce_scatter(comm, mine, parts)
    all_gather(comm, parts, mine)


def check_sum_everywhere(answer):
    for ranks in (4, 1, 3):
        outcomes, trace = on_ranks(changed, ranks, function(answer), [ELEMENTS] * ranks)
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
    return "one sum, to the last bit, on 1, 3 and 4 ranks, and all have equally much to do."


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
    """Refuse all_reduce itself, and a rank with more to do than to add up a part and pass it on."""
    parts = ("reduce", "broadcast", "gather", "scatter", "all_gather", "reduce_scatter")
    only_messages(trace, answer, allowed=(*parts, "all_to_all", "barrier"))
    received = [sum(m.bytes for m in trace.messages if m.dst == rank) for rank in range(ranks)]
    most, verb, rank = max(
        *((sent, "sends", rank) for rank, sent in enumerate(trace.sent_bytes)),
        *((got, "receives", rank) for rank, got in enumerate(received)),
        key=lambda each: each[0],
    )
    enough = 2 * (ranks - 1) * math.ceil(ELEMENTS / ranks)  # elements
    if most > 4 * enough:
        raise Wrong(
            f"the sum is right, but on {ranks} ranks rank {rank} {verb} {most / 4 / ELEMENTS:.3g} "
            f"times the bytes of x, where {2 * (ranks - 1) / ranks:.3g} times are enough: let each "
            f"rank add up one part, and no rank more than that."
        )


def check_broadcast_crossover(answer):
    got = number(answer)
    (_, alpha), (nbytes, seconds) = PING_PONG
    per_alpha = (nbytes - 8) / (seconds - alpha)  # bytes in the time of one alpha: times alpha
    one = alpha * per_alpha
    right, kilobytes = one * 11 / 1.25, one * 11 / 1.25e3
    refuse(
        got,
        (kilobytes, "the number is right in kB; the question asks for bytes."),
        (kilobytes / 1000, "the number is right in MB; the question asks for bytes."),
        (8 * right, "the ping-pong was measured in bytes: do not turn them into bits."),
        (one, "at this size a single message is half latency; compare two whole broadcasts."),
        (one * 4 / 1.25, "scatter takes p - 1 = 7 steps, and all-gather takes 7 more."),
        (one * 4 / 2.125, "after the scatter each rank has only a part: all-gather costs, too."),
        (one * 11 / 2.125, "in the all-gather each rank sends 7/8 of the bytes once more."),
        (one * 11 / 2.0, "the two each carry 7/8 of N: together twice 7/8 N, not N."),
        (one * 7 / 5.25, "a tree has ceil(lg 8) = 3 steps; 7 is one rank after another."),
        (
            one * 11 / 1.0,
            "scatter and all-gather leave out one part each: 7/8 of the bytes, twice.",
        ),
        tolerance=0.01,
    )
    if not close(got, right, 0.01):
        raise Wrong(
            f"set 3 alpha + 3 N beta against the time of scatter and all-gather: they are not "
            f"equal at {got:,.0f} bytes."
        )
    return "beyond that size the tree, which sends all of x in each of its steps, is slower."


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
    right = "no rank relies on room for a message that nobody has asked for"
    if trace.steps == 1:
        return f"{right}, and all of them send in one step."
    return f"{right}. But not all send at once: its messages need {trace.steps} steps, not one."


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
        "choose_collectives",
        "which collective does each of the jobs (a) to (f)? Give a list of six names, in order.",
        check_choose_collectives,
        (
            "ask two things of each job: who has what before, and who needs what afterwards?",
            "is something added up? Then it is one of reduce, reduce_scatter, all_reduce.",
            "several would do (c) and (d); choose the one that gives no rank more than it needs.",
        ),
        "[" + ", ".join(f'"{name}"' for name in JOBS) + "]",
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
        "parts of different lengths. Fill the tensors that are in outs; send to the right "
        "neighbour only, p - 1 messages a rank.",
        check_ring_all_gather,
        (
            "begin with outs[comm.rank].copy_(x); then pass on what came from the left.",
            "in step s, rank r sends the part of rank r - s and receives that of rank r - s - 1.",
            "comm.exchange(outs[mine], right, outs[theirs], left) sends and receives at once.",
        ),
        all_gather,
    ),
    Exercise(
        "sum_everywhere",
        "write sum_everywhere(comm, x): every rank's x becomes the sum of all, in place and with "
        "the same bits on each; no rank sends or receives more than 2 (p - 1)/p times the bytes of "
        "x. All of notebook 09 is allowed, all_reduce is not.",
        check_sum_everywhere,
        (
            "(a + b) + c and a + (b + c) can differ in the last bit: let one rank add up a part, "
            "and the others copy it.",
            "parts = list(x.tensor_split(comm.size)) are views: what is written there is in x.",
            "reduce_scatter gives this rank its part of the sum; all_gather gives it to all.",
        ),
        sum_everywhere,
    ),
    Exercise(
        "broadcast_crossover",
        "from how many bytes on are scatter and all-gather together faster than a tree broadcast, "
        "on 8 ranks of the network that was measured?",
        check_broadcast_crossover,
        (
            "two messages, two equations: 20 µs = alpha + 8 beta, 64.02 ms = alpha + 80e6 beta.",
            "the tree takes 3 (alpha + N beta); scatter takes 7 alpha + 7/8 N beta, and all-gather "
            "takes as long again.",
            "the bytes are equal in time where 11 alpha = (3 - 14/8) N beta.",
        ),
        "alpha = 20 µs, beta = 0.8 ns a byte. 3 alpha + 3 N beta = 14 alpha + 14/8 N beta gives "
        "N = 11 alpha / (1.25 beta) = 220,000 bytes.",
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
