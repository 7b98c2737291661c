"""Shards, ages, bounds, rates, bytes, lost updates: answers that were really likely."""

import math
from collections import Counter

import torch

from course.classroom.problems.p14_parameter_server import (
    bring_gradients,
    bring_weights,
    bytes_with_shards,
    may_go_on,
    rate_for_staleness,
    staleness_histogram,
)
from course.collectives import all_reduce
from course.comm import ANY
from tests.classroom.gallery import Gallery, gallery_tests

# Bounds of shards


def bounds_stub(elements, servers):
    """Where each server's shard begins, and the end."""
    ...


def in_proportion(elements, servers):
    return [elements * k // servers for k in range(servers + 1)]


def longer_ones_first(elements, servers):
    size, longer = divmod(elements, servers)
    return [k * size + min(k, longer) for k in range(servers + 1)]


def rest_to_the_last(elements, servers):
    return [k * (elements // servers) for k in range(servers)] + [elements]


def rest_to_nobody(elements, servers):
    return [k * (elements // servers) for k in range(servers + 1)]


def rounded_up(elements, servers):
    return [min(elements, k * -(-elements // servers)) for k in range(servers + 1)]


def rounded_up_beyond(elements, servers):
    return [k * -(-elements // servers) for k in range(servers + 1)]


def sizes_only(elements, servers):
    bounds = in_proportion(elements, servers)
    return [end - begin for begin, end in zip(bounds, bounds[1:])]


def without_the_end(elements, servers):
    return in_proportion(elements, servers)[:-1]


def without_the_beginning(elements, servers):
    return [1] + in_proportion(elements, servers)[1:]


def with_fractions(elements, servers):
    return [elements / servers * k for k in range(servers + 1)]


def as_tensors(elements, servers):
    return list(torch.linspace(0, elements, servers + 1))


def slices(elements, servers):
    return slice(0, elements, servers)


def by_a_fraction(elements, servers):
    return [int(k * (elements / servers)) for k in range(servers + 1)]


# How old pushes were


def log_stub(log):
    """How many pushes were 0, 1, 2, ... versions old."""
    pass


def with_a_counter(log):
    version, given, counts = 0, Counter(), Counter()
    for what, client in log:
        if what == "pull":
            given[client] = version
        else:
            counts[version - given[client]] += 1
            version += 1
    return [counts[age] for age in range(max(counts, default=-1) + 1)]


def ages_by(log, pulled=True, pushed=False, before=0):
    """Ages where a client's version is noted at its pulls, its pushes, or both."""
    version, based, ages = 0, Counter(), []
    for what, client in log:
        if what == "push":
            ages.append(version + before - based[client])
            version += 1
        if pulled if what == "pull" else pushed:
            based[client] = version
    return ages


def counted(ages):
    return [ages.count(age) for age in range(max(ages, default=-1) + 1)]


def counts_the_push_itself(log):
    return counted(ages_by(log, before=1))


def since_its_last_word(log):
    return counted(ages_by(log, pushed=True))


def without_zeros(log):
    counts = Counter(ages_by(log))
    return [counts[age] for age in sorted(counts)]


def oldest_first(log):
    return counted(ages_by(log))[::-1]


def as_a_dict(log):
    return dict(Counter(ages_by(log)))


def as_ages(log):
    return ages_by(log)


def as_words(log):
    return [f"{count} pushes" for count in counted(ages_by(log))]


def by_its_first_pull(log):
    version, based, ages, fresh = 0, {}, [], set()
    for what, client in log:
        if what == "push":
            ages.append(version - based[client])
            version += 1
            fresh.discard(client)
        elif client not in fresh:
            based[client] = version
            fresh.add(client)
    return counted(ages)


def five_ages_at_most(log):
    return counted(ages_by(log))[:5]


def pushes_of_others(log):
    based, ages = {}, []
    pushes = []
    for what, client in log:
        if what == "pull":
            based[client] = len(pushes)
        else:
            ages.append(sum(other != client for other in pushes[based[client] :]))
            pushes.append(client)
    return counted(ages)


def fails_without_a_push(log):
    ages = ages_by(log)
    return [ages.count(age) for age in range(max(ages) + 1)]


# Who may go on


def bound_stub(clocks, s):
    """The clients who may be given weights."""
    ...


def one_by_one(clocks, s):
    allowed = []
    for client in sorted(clocks):
        if all(clocks[client] <= other + s for other in clocks.values()):
            allowed.append(client)
    return allowed


def as_a_set(clocks, s):
    return {client for client in clocks if clocks[client] - min(clocks.values()) <= s}


def less_than_s(clocks, s):
    return sorted(c for c in clocks if clocks[c] - min(clocks.values()) < s)


def near_the_fastest(clocks, s):
    return sorted(c for c in clocks if max(clocks.values()) - clocks[c] <= s)


def near_the_mean(clocks, s):
    mean = sum(clocks.values()) / len(clocks)
    return sorted(c for c in clocks if clocks[c] - mean <= s)


def one_further(clocks, s):
    return sorted(c for c in clocks if clocks[c] - min(clocks.values()) <= s + 1)


def near_anybody(clocks, s):
    near = {c: [abs(clocks[c] - clocks[o]) for o in clocks if o != c] for c in clocks}
    return sorted(c for c in clocks if not near[c] or min(near[c]) <= s)


def slowest_only(clocks, s):
    return sorted(c for c in clocks if clocks[c] == min(clocks.values()))


def yes_or_no(clocks, s):
    return [clock - min(clocks.values()) <= s for _, clock in sorted(clocks.items())]


def in_any_order(clocks, s):
    allowed = may_go_on(clocks, s)
    return allowed[::-1]


def in_pairs(clocks, s):
    return [[client, clocks[client]] for client in may_go_on(clocks, s)]


def how_many(clocks, s):
    return len(may_go_on(clocks, s))


# The rate that a staleness allows


def rate_stub(s, h):
    """The largest rate."""
    ...


def shrinks(rate, s, h, updates=4000):
    w = [1.0]
    for t in range(updates):
        w.append(w[t] - rate * h * w[max(0, t - s)])
        if abs(w[-1]) > 1e3:
            return False
    return max(map(abs, w[-200:])) < 1


def by_trying(s, h):
    low, high = 0.0, 2.5 / h
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if shrinks(middle, s, h) else (low, middle)
    return (low + high) / 2


def without_curvature(s, h):
    return 2 * math.sin(math.pi / (4 * s + 2))


def times_curvature(s, h):
    return 2 * math.sin(math.pi / (4 * s + 2)) * h


def in_degrees(s, h):
    return 2 * math.sin(90 / (2 * s + 1)) / h


def without_a_sine(s, h):
    return math.pi / (2 * s + 1) / h


def nth_part(s, h):
    return 2 / (s + 1) / h


def by_clients(s, h):
    return 2 * math.sin(math.pi / (4 * (s + 1) + 2)) / h


def tries_up_to_four(s, h):
    return min(4.0, by_trying(s, h))


def a_small_one(s, h):
    return 0.01 / h


def as_if_fresh(s, h):
    return 2 / h


def negative_rate(s, h):
    return -2 / h


def rate_as_text(s, h):
    return "two over h"


# Bytes of shards on the workers


def bytes_stub(sizes, itemsize):
    """The bytes that each rank sends."""
    ...


def message_by_message(sizes, itemsize):
    sent = [0] * len(sizes)
    for sender, own in enumerate(sizes):
        for receiver, theirs in enumerate(sizes):
            if sender != receiver:
                sent[sender] += itemsize * (theirs + own)
    return sent


def in_elements(sizes, itemsize):
    return bytes_with_shards(sizes, 1)


def in_bits(sizes, itemsize):
    return bytes_with_shards(sizes, 8 * itemsize)


def shard_to_itself(sizes, itemsize):
    return [(sum(sizes) - size + len(sizes) * size) * itemsize for size in sizes]


def eight_bytes_each(sizes, itemsize):
    return bytes_with_shards(sizes, 8)


def pushes_only(sizes, itemsize):
    return [(sum(sizes) - size) * itemsize for size in sizes]


def pulls_only(sizes, itemsize):
    return [(len(sizes) - 1) * size * itemsize for size in sizes]


def there_and_back(sizes, itemsize):
    return [2 * sum(sizes) * itemsize] * len(sizes)


def to_itself_too(sizes, itemsize):
    return [(sum(sizes) + len(sizes) * size) * itemsize for size in sizes]


def shard_to_one(sizes, itemsize):
    return [sum(sizes) * itemsize for _ in sizes]


def hands_out_all(sizes, itemsize):
    p = len(sizes)
    return [(sum(sizes) - size + (p - 1) * sum(sizes)) * itemsize for size in sizes]


def whole_gradients(sizes, itemsize):
    p = len(sizes)
    return [((p - 1) * sum(sizes) + (p - 1) * size) * itemsize for size in sizes]


def all_alike(sizes, itemsize):
    p = len(sizes)
    return [2 * sum(sizes) * (p - 1) / p * itemsize for _ in sizes]


def in_all(sizes, itemsize):
    return 2 * sum(sizes) * (len(sizes) - 1) * itemsize


def nothing_at_all(sizes, itemsize):
    return [0 for _ in sizes]


# Lost updates


def brings_changes(comm, w, gradients, rate):
    if comm.rank == 0:
        change = torch.empty_like(w)
        for _ in range(len(gradients) * (comm.size - 1)):
            client = comm.recv(change, ANY)
            w += change
            comm.send(w, client)
    else:
        for gradient in gradients:
            comm.send(-rate * gradient, 0)
            comm.recv(w, 0)


def server(comm, w, steps, take, answer=None):
    """Serve so many pushes: `take(w, came)` changes w; `answer(comm, w, client)` answers."""
    came = torch.empty_like(w)
    for _ in range(steps * (comm.size - 1)):
        client = comm.recv(came, ANY)
        take(w, came)
        (answer or (lambda comm, w, client: comm.send(w, client)))(comm, w, client)


def averages_weights(comm, w, gradients, rate):
    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.copy_((w + came) / 2))
    for gradient in gradients if comm.rank else ():
        w -= rate * gradient
        comm.send(w, 0)
        comm.recv(w, 0)


def adds_weights(comm, w, gradients, rate):
    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.add_(came))
    for gradient in gradients if comm.rank else ():
        w -= rate * gradient
        comm.send(w, 0)
        comm.recv(w, 0)


def changes_from_the_start(comm, w, gradients, rate):
    start = w.clone()
    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.add_(came))
    for gradient in gradients if comm.rank else ():
        w -= rate * gradient
        comm.send(w - start, 0)
        comm.recv(w, 0)


def forgets_the_rate(comm, w, gradients, rate):
    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.sub_(came, alpha=1.0))
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def changes_the_copy_it_gave(comm, w, gradients, rate):
    if comm.rank == 0:
        given = {client: w.clone() for client in range(1, comm.size)}
        came = torch.empty_like(w)
        for _ in range(len(gradients) * (comm.size - 1)):
            client = comm.recv(came, ANY)
            w.copy_(given[client] - rate * came)
            given[client] = w.clone()
            comm.send(w, client)
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def answers_first(comm, w, gradients, rate):
    if comm.rank == 0:
        came = torch.empty_like(w)
        for _ in range(len(gradients) * (comm.size - 1)):
            client = comm.recv(came, ANY)
            comm.send(w, client)
            w -= rate * came
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def in_turn(comm, w, gradients, rate):
    if comm.rank == 0:
        came = torch.empty_like(w)
        for _ in gradients:
            for client in range(1, comm.size):
                comm.recv(came, client)
                w -= rate * came
                comm.send(w, client)
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def both_sides_step(comm, w, gradients, rate):
    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.sub_(came, alpha=2 * rate))
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def serves_and_trains(comm, w, gradients, rate):
    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.sub_(came, alpha=rate))
        for gradient in gradients:
            w -= rate * gradient
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def asks_first(comm, w, gradients, rate):
    if comm.rank == 0:
        came = torch.empty_like(w)
        for _ in range(len(gradients) * (comm.size - 1)):
            client = comm.recv(came, ANY)
            comm.send(w, client)
            comm.recv(came, client)
            w.copy_(came)
    for gradient in gradients if comm.rank else ():
        comm.send(w, 0)
        comm.recv(w, 0)
        w -= rate * gradient
        comm.send(w, 0)


def always_the_first(comm, w, gradients, rate):
    bring_gradients(comm, w, [gradients[0].clone() for _ in gradients], rate)


def always_a_quarter(comm, w, gradients, rate):
    bring_gradients(comm, w, gradients, 0.25)


def always_five_steps(comm, w, gradients, rate):
    if comm.rank == 0:
        server(comm, w, 5, lambda w, came: w.sub_(came, alpha=rate))
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        comm.recv(w, 0)


def answers_in_halves(comm, w, gradients, rate):
    def answer(comm, w, client):
        for half in w.tensor_split(2):
            comm.send(half, client)

    if comm.rank == 0:
        server(comm, w, len(gradients), lambda w, came: w.sub_(came, alpha=rate), answer)
    for gradient in gradients if comm.rank else ():
        comm.send(gradient, 0)
        for half in w.tensor_split(2):
            comm.recv(half, 0)


def from_all_at_once(comm, w, gradients, rate):
    total = sum(gradients) * (comm.rank > 0)
    all_reduce(comm, total)
    w -= rate * total


GALLERIES = [
    Gallery(
        "shard_bounds",
        bounds_stub,
        [in_proportion, longer_ones_first],
        {
            "7 elements on 4 servers: one keeps 4 and another 1": rest_to_the_last,
            "2410 elements on 3 servers: those from 2409 on have no server.": rest_to_nobody,
            "2410 elements on 3 servers: one keeps 804 and another 802": rounded_up,
            "2410 elements on 3 servers: the last bound is 2412": rounded_up_beyond,
            "10 elements on 2 servers: [5, 5] are sizes": sizes_only,
            "10 elements on 2 servers: there are 3 bounds, not 2.": without_the_end,
            "element 0 has no server, since the first bound is 1.": without_the_beginning,
            "a bound is a whole number, not 0.0.": with_fractions,
            "a bound is a whole number, not tensor(0.).": as_tensors,
            "a list of bounds is wanted, not slice(0, 10, 2).": slices,
            "1 elements on 49 servers: those from 0 on have no server.": by_a_fraction,
        },
    ),
    Gallery(
        "staleness_histogram",
        log_stub,
        [staleness_histogram, with_a_counter],
        {
            "the log of the drawing at the top: all are one too old": counts_the_push_itself,
            "its own first push makes a version, too, so its second": pushes_of_others,
            "it has the weights of its pull; its push does not make them": since_its_last_word,
            "the log of the drawing at the top: [1, 2] is right, not [2, 1].": oldest_first,
            "an age that nobody had takes a place in the list too": without_zeros,
            "a list is wanted, its place k for the age k, not {0: 1, 1: 2}.": as_a_dict,
            "3 pushes, but the list counts 2: [0, 1, 1].": as_ages,
            "a number is wanted, not '1 pushes'.": as_words,
            "pulls twice before it pushes: [2, 0, 1] is right, not [1, 1, 1].": by_its_first_pull,
            "9 pushes, but the list counts 8: [2, 2, 2, 2, 0].": five_ages_at_most,
            "fails_without_a_push, line 3 of your cell:": fails_without_a_push,
        },
    ),
    Gallery(
        "may_go_on",
        bound_stub,
        [may_go_on, one_by_one],
        {
            "a list in order is wanted, and a set has no order": as_a_set,
            "s = 2, client 3 would wait, but is only 2 ahead.": less_than_s,
            "s = 2, client 2 would wait, but is only 1 ahead.": slowest_only,
            "s = 2, client 2 would go on, but is 4 ahead.": near_the_mean,
            "s = 1, client 1 would go on, but is 2 ahead.": one_further,
            "s = 2, [3, 4] are those near the fastest": near_the_fastest,
            "s = 2, client 1 would wait, and it is the slowest: for whom?": near_anybody,
            "True is not the number of a client.": yes_or_no,
            "the clients are wanted in order and once, not [3, 2, 1].": in_any_order,
            "[1, 0] is not the number of a client.": in_pairs,
            "a list of clients is wanted, not 1.": how_many,
        },
    ),
    Gallery(
        "rate_for_staleness",
        rate_stub,
        [rate_for_staleness, by_trying],
        {
            "staleness 3, curvature 0.5: what is limited is rate times": without_curvature,
            "curvature 0.5: what is limited is rate times curvature, so": times_curvature,
            "sin takes radians: a right angle is pi / 2, not 90.": in_degrees,
            "takes the sine's angle for the sine: good for old gradients.": without_a_sine,
            "staleness 3, curvature 0.5: 2 / h over 4, 1, is a good guess, but": nth_part,
            "staleness 0, curvature 1: one version off: n clients out of": by_clients,
            "with the rate 0.01 the walk still shrinks: a larger rate": a_small_one,
            "curvature 1: 2 is the limit for fresh gradients: stale ones": as_if_fresh,
            "curvature 0.2: with the rate 4 the walk still shrinks": tries_up_to_four,
            "with the rate -2 the walk does not shrink.": negative_rate,
            "a number is wanted, not 'two over h'.": rate_as_text,
        },
    ),
    Gallery(
        "bytes_with_shards",
        bytes_stub,
        [bytes_with_shards, message_by_message],
        {
            "8 bytes each: those are elements: how many bytes has each?": in_elements,
            "only the parts of gradients are counted: new weights": pushes_only,
            "only the new weights are counted: parts of gradients": pulls_only,
            "a rank sends nothing to itself: neither": to_itself_too,
            "everybody needs the new shard, and it goes to one rank only.": shard_to_one,
            "a rank sends its own shard to the others, not all weights.": hands_out_all,
            "the gradient goes to the others in parts, to each only": whole_gradients,
            "that is all weights there and back, as with a server": there_and_back,
            "right in all, but who has a larger shard sends more": all_alike,
            "a list of 3 numbers is wanted, one for each rank, not 352.": in_all,
            "[136, 112, 104] is right, not [0.0, 0.0, 0.0].": nothing_at_all,
            "8 bytes each: those are bits: how many make a byte?": in_bits,
            "or its new shard, goes to the rank itself as well.": shard_to_itself,
            "4 bytes each: [72, 32, 40, 48] is right, not [144.0": eight_bytes_each,
        },
    ),
    Gallery(
        "bring_gradients",
        bring_weights,
        [bring_gradients, brings_changes],
        {
            "4 of the 4 updates of client 2 are missing from w": changes_the_copy_it_gave,
            "of the 5 updates of client 1 w holds 2.5: each is to move": averages_weights,
            "w moved against the gradients of client 1: subtract rate · gradient": adds_weights,
            "of the 5 updates of client 1 w on rank 0 holds 31: some": changes_from_the_start,
            "of the 5 updates of client 1 w on rank 0 holds 10: some": both_sides_step,
            "w moved by the gradients, not by rate times": forgets_the_rate,
            "client 1 ends without its own last update": answers_first,
            "rank 0 only serves, but its own gradients are in w.": serves_and_trains,
            "on 2 ranks, client 1 sent 10 messages in 5 steps.": asks_first,
            "on 2 ranks, rank 0 sent 10 messages, and one for each of 5": answers_in_halves,
            "but w on rank 0 holds the gradient of its step 0 5 times.": always_the_first,
            "on 3 ranks, of the 4 updates of client 1 w holds 2.667": always_a_quarter,
            "a rank waits for one that has finished (on 3 ranks)": always_five_steps,
            "all_reduce does the work for you here": from_all_at_once,
            "rank 0 is to take whoever comes, recv(..., ANY), not one after": in_turn,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
