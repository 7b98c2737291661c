"""Exercises of notebook 14: the bounds of shards, how stale pushes were, who may go on, the rate
that a staleness allows, the bytes of shards on workers, a server that loses updates."""

import math
import random
from collections import Counter
from operator import index

import torch

from course.classroom.answers import function, number, on_ranks
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong
from course.comm import ANY, CommTimeout
from course.worlds import RankError

CUTS = (
    (10, 2), (2410, 3), (7, 4), (9, 4), (2, 5), (61_000_000, 64),
    (1, 49), (4, 49), (7, 55),  # k * (elements / servers) is a little too small
)  # fmt: skip
BOWLS = (
    (0, 1.0), (1, 1.0), (3, 0.5), (7, 4.0), (2, 10.0), (15, 1.0),
    (0, 0.2), (1, 6.0), (4, 0.3), (9, 40.0), (24, 0.7),
)  # fmt: skip
SHARDS = (((6, 3, 2), 8), ((603, 603, 602, 602), 8), ((5, 0, 1, 2), 4), ((1, 7), 2), ((7,), 8))
STEPS, RATES = {2: 5, 3: 4, 4: 3}, {2: 0.25, 3: 0.375, 4: 0.625}  # on so many ranks
START, LATER = 10.0, 7  # the second is the tag of a word between clients


def shard_bounds(elements, servers):
    """A list of servers + 1 numbers: server k keeps those from the k-th to before the next.

    Its place in proportion, rounded down, is even to one element.
    """
    return [elements * k // servers for k in range(servers + 1)]


def check_shard_bounds(answer):
    for elements, servers in CUTS:
        where = f"{elements} elements on {servers} servers:"
        check_bounds(where, function(answer)(elements, servers), elements, servers)
    return "no element is lost or kept twice, and no server has more than one above another."


def check_bounds(where, got, elements, servers):
    """Refuse bounds that do not cut `elements` into even parts."""
    bounds = whole_numbers(where, got)
    if len(bounds) == servers and sum(bounds) == elements:
        raise Wrong(f"{where} {bounds} are sizes; wanted is where each shard begins, and the end.")
    if len(bounds) != servers + 1:
        raise Wrong(f"{where} there are {servers + 1} bounds, not {len(bounds)}.")
    if bounds[0] != 0:
        raise Wrong(f"{where} element 0 has no server, since the first bound is {bounds[0]}.")
    if bounds[-1] < elements:
        raise Wrong(f"{where} those from {bounds[-1]} on have no server.")
    if bounds[-1] > elements:
        raise Wrong(f"{where} the last bound is {bounds[-1]}, beyond the last element.")
    sizes = [end - begin for begin, end in zip(bounds, bounds[1:])]
    if max(sizes) - min(sizes) > 1:
        raise Wrong(f"{where} one keeps {max(sizes)} and another {min(sizes)}: cut more evenly.")


def whole_numbers(where, got) -> list:
    """`got` as a list of whole numbers."""
    if not isinstance(got, list | tuple):
        raise Wrong(f"{where} a list of bounds is wanted, not {got!r:.40}.")
    return [whole_number(where, each) for each in got]


def whole_number(where, bound) -> int:
    """`bound`, if it is a whole number."""
    try:
        return index(bound)
    except TypeError:
        raise Wrong(f"{where} a bound is a whole number, not {bound!r:.20}.") from None


def staleness_histogram(log):
    """How many pushes were 0, 1, 2, ... versions old, of a server's `log` [(what, client)].

    `what` is "pull" or "push"; every push makes a version.
    """
    version, based, ages = 0, {}, []
    for what, client in log:
        if what == "pull":
            based[client] = version
        else:
            ages.append(version - based[client])
            version += 1
    return [ages.count(age) for age in range(max(ages, default=-1) + 1)]


def logs():
    """Logs: of the drawing at the top, of clients that keep no order, and of many by chance."""
    by_hand = [("pull", 1), ("pull", 2), ("push", 1), ("pull", 1), ("push", 2), ("push", 1)]
    twice = [("pull", 1), ("pull", 2), ("push", 2), ("push", 1), ("push", 1)]
    late = [("pull", 1), ("pull", 2), *[("push", 2), ("pull", 2)] * 4, ("push", 1), ("push", 2)]
    again = [("pull", 1), ("pull", 2), ("push", 2), ("pull", 1), ("push", 1), ("push", 2)]
    draw = random.Random(14)
    return {
        "the log of the drawing at the top": by_hand,
        "a client that pushes twice after a pull": twice,
        "a client that is four times slower": late,
        "a client that pulls twice before it pushes": again,
        "a log without any push": [("pull", 1), ("pull", 2)],
        "an empty log": [],
        **{f"{n} clients in {5 * n} lines": log_by_chance(draw, n) for n in range(2, 12)},
    }


def log_by_chance(draw, clients):
    """A log of as many clients, with any numbers: all pull, then each does whatever comes first."""
    numbers = draw.sample(range(100), clients)
    words = [(draw.choice(["pull", "push"]), draw.choice(numbers)) for _ in range(4 * clients)]
    return [*(("pull", each) for each in numbers), *words]


def check_staleness_histogram(answer):
    for what, log in logs().items():
        got = function(answer)(list(log))
        check_histogram(f"{what}:", got, log, staleness_histogram(log))
    return "between a pull and a push every push of anybody makes the gradient one version older."


def check_histogram(where, got, log, right):
    """Refuse a histogram that is not `right`, and say what it is instead."""
    if isinstance(got, torch.Tensor):
        got = got.tolist()
    if not isinstance(got, list | tuple):
        raise Wrong(f"{where} a list is wanted, its place k for the age k, not {got!r:.40}.")
    counts = [number(each) for each in got]
    if counts == right:
        return
    if counts == [0, *right]:
        raise Wrong(f"{where} all are one too old: a push does not come before itself.")
    if counts == [count for count in right if count]:
        raise Wrong(f"{where} an age that nobody had takes a place in the list too, with 0 in it.")
    if counts == [2, 1] and right == [1, 1, 1]:
        raise Wrong(f"{where} it has the weights of its pull; its push does not make them younger.")
    if counts == [1, 2] and right == [1, 1, 1]:
        raise Wrong(f"{where} its own first push makes a version, too, so its second one is older.")
    pushes = sum(what == "push" for what, _ in log)
    if sum(counts) != pushes:
        raise Wrong(f"{where} {pushes} pushes, but the list counts {sum(counts):g}: {got}.")
    raise Wrong(f"{where} {right} is right, not {got}.")


def may_go_on(clocks, s):
    """The clients who may be given weights, in order: no more than `s` pushes ahead of the slowest.

    `clocks` {client: its pushes so far}.  Source: Ho et al. 2013.
    """
    slowest = min(clocks.values())
    return sorted(client for client, clock in clocks.items() if clock - slowest <= s)


def check_may_go_on(answer):
    draw = random.Random(13)
    cases = [({1: 0, 2: 4, 3: 5, 4: 7}, 2), ({1: 0, 2: 1, 3: 2}, 2), ({3: 2, 1: 3, 2: 1}, 1)]
    cases += [({1: 0, 2: 0}, 0), ({4: 9}, 0), ({1: 5, 2: 0}, math.inf)]
    for _ in range(40):
        clients = draw.sample(range(1, 9), draw.randint(2, 6))
        cases.append(({each: draw.randint(0, 6) for each in clients}, draw.randint(0, 4)))
    for clocks, s in cases:
        check_allowed(clocks, s, function(answer)(dict(clocks), s))
    return "the slowest never waits, so somebody can always go on."


def check_allowed(clocks, s, got):
    """Refuse a list of clients that is not the right one, and name the first who is wrong."""
    where = f"with the clocks {clocks} and s = {s},"
    if isinstance(got, set | frozenset):
        raise Wrong(
            f"{where} a list in order is wanted, and a set has no order: sorted() makes one."
        )
    if not isinstance(got, list | tuple):
        raise Wrong(f"{where} a list of clients is wanted, not {got!r:.40}.")
    strangers = [each for each in got if isinstance(each, bool) or each not in list(clocks)]
    if strangers:
        raise Wrong(f"{where} {strangers[0]!r:.20} is not the number of a client.")
    slowest, allowed = min(clocks.values()), may_go_on(clocks, s)
    if set(got) == {c for c in clocks if max(clocks.values()) - clocks[c] <= s} != set(allowed):
        raise Wrong(f"{where} {sorted(got)} are those near the fastest: they are to wait.")
    for client in sorted(clocks):
        ahead = clocks[client] - slowest
        if client in allowed and client not in got and not ahead:
            raise Wrong(f"{where} client {client} would wait, and it is the slowest: for whom?")
        if client in allowed and client not in got:
            raise Wrong(f"{where} client {client} would wait, but is only {ahead} ahead.")
        if client in got and client not in allowed:
            raise Wrong(f"{where} client {client} would go on, but is {ahead} ahead.")
    if list(got) != allowed:
        raise Wrong(f"{where} the clients are wanted in order and once, not {got}.")


def rate_for_staleness(s, h):
    """The largest rate at which w <- w - rate · h · (w of s versions ago) still shrinks.

    On the edge w is a wave exp(i phi t), and rate · h = exp(i phi s) (1 - exp(i phi)) is first a
    positive number at phi = pi / (2s + 1).
    """
    return 2 * math.sin(math.pi / (2 * (2 * s + 1))) / h


def check_rate_for_staleness(answer):
    for s, h in BOWLS:
        where = f"staleness {s}, curvature {h:g}:"
        check_rate(where, number(function(answer)(s, h)), s, h)
    return "from one version to the next the limit falls from 2 / h to about pi / (2 s h)."


def check_rate(where, rate, s, h):
    """Refuse a rate that is not the largest one, and name the slip if it is a known one."""

    def near(other):
        return math.isclose(rate, other, rel_tol=0.02)

    right = rate_for_staleness(s, h)
    if near(right):
        return
    if near(right * h) or near(right * h * h):
        raise Wrong(f"{where} what is limited is rate times curvature, so divide by the curvature.")
    if near(2 * math.sin(90 / (2 * s + 1)) / h):
        raise Wrong(f"{where} sin takes radians: a right angle is pi / 2, not 90.")
    if near(math.pi / (2 * s + 1) / h):
        raise Wrong(
            f"{where} {rate:.4g} takes the sine's angle for the sine: good for old gradients."
        )
    if near(2 / (s + 1) / h):
        raise Wrong(f"{where} 2 / h over {s + 1}, {rate:.4g}, is a good guess, but it diverges.")
    if near(2 / h):
        raise Wrong(f"{where} {rate:.4g} is the limit for fresh gradients: stale ones allow less.")
    if near(rate_for_staleness(s + 1, h)):
        raise Wrong(f"{where} one version off: n clients out of step have a staleness of n - 1.")
    fate = "still shrinks: a larger rate does, too" if 0 < rate < right else "does not shrink"
    raise Wrong(f"{where} with the rate {rate:.4g} the walk {fate}.")


def bytes_with_shards(sizes, itemsize):
    """The bytes that each rank sends in a step, where rank r keeps a shard of sizes[r] elements.

    It sends every other rank that rank's part of its gradient, and everybody its own new shard.
    """
    p, elements = len(sizes), sum(sizes)
    return [(elements - size + (p - 1) * size) * itemsize for size in sizes]


def check_bytes_with_shards(answer):
    for sizes, itemsize in SHARDS:
        where = f"shards of {list(sizes)} elements, {itemsize} bytes each:"
        check_bytes(where, function(answer)(list(sizes), itemsize), sizes, itemsize)
    return "on average 2 W (p - 1) / p, the bytes of a ring all-reduce, and no rank beside them."


def check_bytes(where, got, sizes, itemsize):
    """Refuse bytes that are not right, and say what they count instead."""
    p, right = len(sizes), bytes_with_shards(sizes, itemsize)
    if not isinstance(got, list | tuple) or len(got) != p:
        raise Wrong(f"{where} a list of {p} numbers is wanted, one for each rank, not {got!r:.40}.")
    got = [number(each) for each in got]
    if got == right:
        return
    for said, counted in other_bytes(sizes, itemsize).items():
        if got == counted:
            raise Wrong(f"{where} {said}")
    if math.isclose(sum(got), sum(right)):
        raise Wrong(f"{where} right in all, but who has a larger shard sends more: {right}.")
    raise Wrong(f"{where} {right} is right, not {got}.")


def other_bytes(sizes, itemsize) -> dict:
    """{words: numbers} of likely mistakes in `bytes_with_shards`."""
    p, elements, right = len(sizes), sum(sizes), bytes_with_shards(sizes, itemsize)
    pushes = [(elements - size) * itemsize for size in sizes]
    pulls = [(p - 1) * size * itemsize for size in sizes]
    whole = (p - 1) * elements * itemsize
    return {
        "those are elements: how many bytes has each?": [each / itemsize for each in right],
        "those are bits: how many make a byte?": [each * 8 for each in right],
        "only the parts of gradients are counted: new weights are sent, too.": pushes,
        "only the new weights are counted: parts of gradients are sent, too.": pulls,
        "a rank sends nothing to itself: neither its gradient's own part nor its shard.": [
            (elements + p * size) * itemsize for size in sizes
        ],
        "its own part of the gradient, or its new shard, goes to the rank itself as well.": [
            (elements + (p - 1) * size) * itemsize for size in sizes
        ],
        "everybody needs the new shard, and it goes to one rank only.": [
            push + size * itemsize for push, size in zip(pushes, sizes)
        ],
        "that is all weights there and back, as with a server; count what goes to other ranks.": [
            2 * elements * itemsize for _ in sizes
        ],
        "a rank sends its own shard to the others, not all weights.": [
            push + whole for push in pushes
        ],
        "the gradient goes to the others in parts, to each only its own.": [
            pull + whole for pull in pulls
        ],
    }


def bring_weights(comm, w, gradients, rate):
    """Rank 0 keeps w; all others bring their gradients to it, one by one, and get w back."""
    if comm.rank == 0:
        for _ in range(len(gradients) * (comm.size - 1)):
            client = comm.recv(w, ANY)
            comm.send(w, client)
    else:
        for gradient in gradients:
            w -= rate * gradient
            comm.send(w, 0)
            comm.recv(w, 0)


def bring_gradients(comm, w, gradients, rate):
    """Rank 0 keeps w; all others bring their gradients to it, one by one, and get w back.

    The change is made where w is, to w as it is then.  Cost: two messages of w's bytes a step.
    """
    if comm.rank == 0:
        came = torch.empty_like(w)
        for _ in range(len(gradients) * (comm.size - 1)):
            client = comm.recv(came, ANY)
            w -= rate * came
            comm.send(w, client)
    else:
        for gradient in gradients:
            comm.send(gradient, 0)
            comm.recv(w, 0)


def check_bring_gradients(answer):
    for ranks in 2, 3, 4:
        ends, trace = brought(ranks, function(answer))
        where = f"on {ranks} ranks,"
        check_counts(where, ends, ranks)
        only_messages(trace, answer)
        check_traffic(where, trace)
    return "every update is in w, whoever came when: nobody wrote over what another had written."


def brought(ranks, answer):
    """Each rank's w after an answer, and its messages.  Refuses a server that waits for rank 1
    while others come before it, which they do where there are more than two ranks."""
    try:
        return on_ranks(counted, ranks, answer)
    except RankError as trouble:
        if ranks > 2 and isinstance(trouble.exception, CommTimeout):
            raise Wrong(
                f"on {ranks} ranks, client 1 begins when client {ranks - 1} has ended, and all "
                "wait: rank 0 is to take whoever comes, recv(..., ANY), not one after another."
            ) from None
        raise


def counted(comm, answer):
    """This rank's w [ranks * steps] after the answer; each gradient of each rank has a place of its
    own, where it differs from 0.  Rank 1 comes when the last rank has gone."""
    word, last, steps = torch.zeros(1), comm.size - 1, STEPS[comm.size]
    w = torch.full((comm.size * steps,), START, dtype=torch.float64)
    gradients = list(torch.diag(slopes(comm.size))[comm.rank * steps :][:steps])
    if comm.rank == 1 < last:
        comm.recv(word, last, LATER)
    answer(comm, w, gradients, RATES[comm.size])
    if comm.rank == last > 1:
        comm.send(word, 1, LATER)
    return w


def slopes(ranks) -> torch.Tensor:
    """What each gradient of each rank is at its place: [ranks * steps] unlike numbers."""
    return 1 + torch.arange(ranks * STEPS[ranks], dtype=torch.float64) / 4


def check_counts(where, ends, ranks):
    """Refuse a w on rank 0 that has not each client's updates, and clients whose last w lacks
    their own."""
    moved = (START - torch.stack(ends)) / slopes(ranks)
    done, *clients = (moved / RATES[ranks]).unflatten(1, (ranks, STEPS[ranks]))
    for client, counts in enumerate(done[1:].tolist(), 1):
        check_count(where, client, sum(counts), ranks)
        check_each(where, client, counts)
    if done[0].any():
        raise Wrong(f"{where} rank 0 only serves, but its own gradients are in w.")
    for client, counts in enumerate(clients, 1):
        if (counts[client] - 1).abs().max() > 1e-9:
            raise Wrong(f"{where} client {client} ends without its own last update, or with more.")


def check_count(where, client, count, ranks):
    """Refuse a `count` of a client's updates that is not that of its steps."""
    steps = STEPS[ranks]
    updates = f"of the {steps} updates of client {client}"
    if math.isclose(count * RATES[ranks], steps):
        raise Wrong(f"{where} w moved by the gradients, not by rate times the gradients.")
    if count < 0:
        rule = "subtract rate · gradient from it, and add nothing"
        raise Wrong(f"{where} w moved against the gradients of client {client}: {rule}.")
    if abs(count - round(count)) > 1e-9:
        raise Wrong(f"{where} {updates} w holds {count:.4g}: each is to move it by its rate.")
    if round(count) < steps:
        raise Wrong(f"{where} {steps - round(count)} {updates} are missing from w on rank 0.")
    if round(count) > steps:
        raise Wrong(f"{where} {updates} w on rank 0 holds {round(count)}: some twice.")


def check_each(where, client, counts):
    """Refuse updates of a client that are not in w once each, though they are as many."""
    for step, count in enumerate(counts):
        if abs(count - 1) > 1e-9:
            times = f"w on rank 0 holds the gradient of its step {step} {count:.3g} times"
            raise Wrong(f"{where} client {client} has another gradient in each step, but {times}.")


def check_traffic(where, trace):
    """Refuse clients that send more than one message a step, and more than one answer to it."""
    sent = Counter(message.src for message in trace.messages if message.tag != LATER)
    steps = STEPS[trace.ranks]
    for rank in range(1, trace.ranks):
        if sent[rank] != steps:
            raise Wrong(f"{where} client {rank} sent {sent[rank]} messages in {steps} steps.")
    pushes = steps * (trace.ranks - 1)
    if sent[0] != pushes:
        raise Wrong(f"{where} rank 0 sent {sent[0]} messages, and one for each of {pushes} pushes "
                    "is enough.")  # fmt: skip


EXERCISES = [
    Exercise(
        "shard_bounds",
        "write shard_bounds(elements, servers): a list of servers + 1 numbers, server k keeps the "
        "elements from the k-th to before the next. Shards differ by one element at most.",
        check_shard_bounds,
        (
            "the first bound is 0 and the last one is elements.",
            "where would the k-th bound be if an element could be cut? Round that.",
            "elements * k // servers, for k from 0 to servers.",
        ),
        shard_bounds,
    ),
    Exercise(
        "staleness_histogram",
        "write staleness_histogram(log): a server's log is a list of ('pull', client) and "
        "('push', client), and each push makes a version. Return how many pushes were 0, 1, 2, ... "
        "versions old, as a list; without any push it is empty.",
        check_staleness_histogram,
        (
            "walk through the log with the version so far, which begins at 0.",
            "at a pull, note for that client which version it got.",
            "at a push, the age is the version now less that client's; then the version goes up.",
        ),
        staleness_histogram,
    ),
    Exercise(
        "may_go_on",
        "write may_go_on(clocks, s): clocks {client: its pushes so far} has all clients. "
        "Return in order those who may be given weights for another step, if nobody may begin one "
        "when more than s pushes ahead of the slowest.",
        check_may_go_on,
        (
            "what counts is the distance from the slowest, not from the others.",
            "s = 0 lets only the slowest go on, math.inf everybody.",
            "a client exactly s ahead may go on.",
        ),
        may_go_on,
    ),
    Exercise(
        "rate_for_staleness",
        "write rate_for_staleness(s, h): the largest rate at which gradients s versions old still "
        "lead to the minimum of a bowl with curvature h. By the formula or by trying.",
        check_rate_for_staleness,
        (
            "with s = 0 it is 2 / h, as in notebook 01; with s = 1 it is half of that.",
            "by trying: walk for a few thousand updates, and halve the interval of rates between "
            "one that shrinks and one that grows.",
            "by the formula: rate times h is 2 sin(pi / (4 s + 2)).",
        ),
        rate_for_staleness,
    ),
    Exercise(
        "bytes_with_shards",
        "write bytes_with_shards(sizes, itemsize): no servers, rank r keeps a shard of sizes[r] "
        "elements. In a step each rank sends every other rank that rank's part of its gradient, "
        "and then everybody else its own new shard. Return the bytes that each rank sends, a list.",
        check_bytes_with_shards,
        (
            "two sums: what a rank pushes to the owners of other shards, and what it hands out.",
            "it pushes all elements but those of its own shard.",
            "it hands out its own shard p - 1 times.",
        ),
        bytes_with_shards,
    ),
    Exercise(
        "bring_gradients",
        "find the bug in bring_gradients(comm, w, gradients, rate): with one client all is well, "
        "with two w on rank 0 lacks updates. Repair it: w ends with all clients' gradients in it, "
        "one message a step each way, whoever comes when.",
        check_bring_gradients,
        (
            "client 1 pulls, client 2 pulls, client 1 writes, client 2 writes: what is left?",
            "what a client sends was right for the w that it had, not for the w that there is.",
            "let the client send what is to be changed, and the server change it.",
        ),
        bring_gradients,
        given=bring_weights,
    ),
]
