"""All-reduce by rings, doubling and over nodes: answers that were really likely."""

import math

import torch

from course.classroom.problems.p10_all_reduce import (
    any_number_of_ranks,
    doubling_of_powers_of_two,
    pass_the_sums_on,
    pass_the_sums_on_wrongly,
    sum_over_nodes,
    sum_round_the_ring,
    whole,
)
from course.collectives import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from tests.classroom.gallery import Gallery, gallery_tests

# Any number of ranks


def doubling_stub(comm, x):
    """Every rank's x becomes the sum of all."""
    ...


def guests_first(comm, x):
    """Every second rank of the first ones gives its x to the next: ranks in pairs."""
    inner = 2 ** int(math.log2(comm.size))
    spare = comm.size - inner
    theirs = torch.empty_like(x)
    if comm.rank < 2 * spare:
        if comm.rank % 2 == 0:
            comm.send(x, comm.rank + 1)
            comm.recv(x, comm.rank + 1)
            return
        comm.recv(theirs, comm.rank - 1)
        x += theirs
    players = [r for r in range(comm.size) if r >= 2 * spare or r % 2]
    me = players.index(comm.rank)
    for level in range(int(math.log2(inner))):
        partner = players[me ^ 2**level]
        comm.exchange(x, partner, theirs, partner)
        x.add_(theirs)
    if comm.rank < 2 * spare:
        comm.send(x, comm.rank - 1)


def doubling_skips_who_is_not_there(comm, x):
    theirs, distance = torch.empty_like(x), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        if partner < comm.size:
            comm.exchange(x, partner, theirs, partner)
            x += theirs
        distance *= 2


def doubling_modulo(comm, x):
    theirs, distance = torch.empty_like(x), 1
    while distance < comm.size:
        ahead, behind = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        comm.exchange(x, ahead, theirs, behind)
        x += theirs
        distance *= 2


def doubling_forgets_the_guests(comm, x):
    inner = 1 << (comm.size.bit_length() - 1)
    if comm.rank >= inner:
        return comm.send(x, comm.rank - inner)
    theirs = torch.empty_like(x)
    if comm.rank + inner < comm.size:
        comm.recv(theirs, comm.rank + inner)
        x += theirs
    distance = 1
    while distance < inner:
        comm.exchange(x, comm.rank ^ distance, theirs, comm.rank ^ distance)
        x += theirs
        distance *= 2


def doubling_ignores_the_guests(comm, x):
    inner = 1 << (comm.size.bit_length() - 1)
    if comm.rank >= inner:
        return comm.recv(x, comm.rank - inner)
    theirs, distance = torch.empty_like(x), 1
    while distance < inner:
        comm.exchange(x, comm.rank ^ distance, theirs, comm.rank ^ distance)
        x += theirs
        distance *= 2
    if comm.rank + inner < comm.size:
        comm.send(x, comm.rank + inner)


def tree_up_and_down(comm, x):
    theirs, distance = torch.empty_like(x), 1
    while distance < comm.size:
        if comm.rank % (2 * distance) == distance:
            comm.send(x, comm.rank - distance)
        elif comm.rank % (2 * distance) == 0 and comm.rank + distance < comm.size:
            comm.recv(theirs, comm.rank + distance)
            x += theirs
        distance *= 2
    while distance > 1:
        distance //= 2
        if comm.rank % (2 * distance) == 0 and comm.rank + distance < comm.size:
            comm.send(x, comm.rank + distance)
        elif comm.rank % (2 * distance) == distance:
            comm.recv(x, comm.rank - distance)


def round_in_whole_vectors(comm, x):
    travelling = x.clone()
    for _ in range(comm.size - 1):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.exchange(travelling.clone(), right, travelling, left)
        x += travelling


def whole_vectors_in_order(comm, x):
    """As it should be with whole vectors: all add in the same order."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs = [torch.empty_like(x) for _ in range(comm.size)]
    outs[comm.rank].copy_(x)
    for step in range(comm.size - 1):
        comm.exchange(
            outs[(comm.rank - step) % comm.size], right, outs[(left - step) % comm.size], left
        )
    x.copy_(sum(outs))


def doubling_on_one_rank_too_few(comm, x):
    """One rank more than need be stays out: of 8 ranks 4 do the work, in two turns of guests."""
    inner = 1 << max(0, (comm.size - 1).bit_length() - 1)
    theirs, guest = torch.empty_like(x), comm.rank + inner
    if comm.rank >= inner:
        comm.send(x, comm.rank - inner)
        return comm.recv(x, comm.rank - inner)
    if guest < comm.size:
        comm.recv(theirs, guest)
        x += theirs
    for half in x.tensor_split(2):
        distance = 1
        while distance < inner:
            landing = torch.empty_like(half)
            comm.exchange(half, comm.rank ^ distance, landing, comm.rank ^ distance)
            half += landing
            distance *= 2
    if guest < comm.size:
        comm.send(x, guest)


def sum_into_another(comm, x):
    total = x.clone()
    any_number_of_ranks(comm, total)
    return total


def mean_instead(comm, x):
    any_number_of_ranks(comm, x)
    x /= comm.size


def from_the_library(comm, x):
    all_reduce(comm, x)


def from_gloo(comm, x):
    comm.native.all_reduce(x)


# The ring


def ring_stub(comm, x):
    """Every rank's x becomes the sum of all."""
    pass


def ring_with_handles(comm, x):
    p, chunks = comm.size, list(x.tensor_split(comm.size))
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(2 * (p - 1)):
        send, receive = (comm.rank - i) % p, (comm.rank - i - 1) % p
        theirs = torch.empty_like(chunks[receive])
        incoming, outgoing = comm.irecv(theirs, left), comm.isend(chunks[send], right)
        incoming.wait(), outgoing.wait()
        if i < p - 1:
            chunks[receive] += theirs
        else:
            chunks[receive][:] = theirs


def ring_with_other_cuts(comm, x):
    """The longer chunks at the end; numbered from the neighbour."""
    p, n = comm.size, len(x)
    cuts = [n * r // p for r in range(p + 1)]
    chunks = [x[a:b] for a, b in zip(cuts, cuts[1:])]
    for i in range(2 * p - 2):
        mine, theirs = chunks[(comm.rank + 1 - i) % p], chunks[(comm.rank - i) % p]
        landing = theirs.clone()
        comm.exchange(mine, (comm.rank + 1) % p, landing, (comm.rank - 1) % p)
        theirs.copy_(theirs + landing if i < p - 1 else landing)


def ring_of_padded_chunks(comm, x):
    p = comm.size
    size = -(-len(x) // p)
    padded = torch.cat([x, x.new_zeros(size * p - len(x))])
    chunks = padded.split(size) if size else [padded] * p
    for i in range(2 * p - 2):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(comm.rank - i - 1) % p]
        landing = theirs.clone()
        comm.exchange(mine, (comm.rank + 1) % p, landing, (comm.rank - 1) % p)
        theirs.copy_(theirs + landing if i < p - 1 else landing)
    x.copy_(padded[: len(x)])


def ring_without_the_second_round(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(comm.rank - i - 1) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, (comm.rank + 1) % p, landing, (comm.rank - 1) % p)
        theirs += landing


def ring_that_adds_twice(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    for i in range(2 * p - 2):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(comm.rank - i - 1) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, (comm.rank + 1) % p, landing, (comm.rank - 1) % p)
        theirs += landing


def ring_for_two(comm, x):
    """Halves, exchanged with the right neighbour and back."""
    mine, theirs = x.tensor_split(2)[comm.rank % 2], x.tensor_split(2)[1 - comm.rank % 2]
    if comm.size > 1:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
        comm.exchange(theirs, right, mine, left)


def ring_that_sends_first(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    for i in range(2 * p - 2):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(comm.rank - i - 1) % p]
        landing = torch.empty_like(theirs)
        comm.send(mine, (comm.rank + 1) % p)
        comm.recv(landing, (comm.rank - 1) % p)
        theirs.copy_(theirs + landing if i < p - 1 else landing)


def ring_to_the_left(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    for i in range(2 * p - 2):
        mine, theirs = chunks[(comm.rank + i) % p], chunks[(comm.rank + i + 1) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, (comm.rank - 1) % p, landing, (comm.rank + 1) % p)
        theirs.copy_(theirs + landing if i < p - 1 else landing)


def ring_in_small_pieces(comm, x):
    for third in x.tensor_split(3):
        sum_round_the_ring(comm, third)


def ring_of_two_collectives(comm, x):
    parts = x.tensor_split(comm.size)
    mine = torch.empty_like(parts[comm.rank])
    reduce_scatter(comm, mine, parts)
    all_gather(comm, parts, mine)


# Over nodes


def nodes_stub(comm, x):
    """Every rank's x becomes the sum of all."""
    raise NotImplementedError


def over_nodes_in_chunks(comm, x):
    """The leaders pass chunks round a ring of their own."""
    first = [comm.nodes.index(node) for node in comm.nodes]
    theirs = torch.empty_like(x)
    mates = [r for r in range(comm.size) if first[r] == first[comm.rank] and r != comm.rank]
    if comm.rank != first[comm.rank]:
        comm.send(x, first[comm.rank])
    else:
        for mate in mates:
            comm.recv(theirs, mate)
            x += theirs
    leaders = comm.split(0 if comm.rank == first[comm.rank] else None)
    if leaders:
        sum_round_the_ring(leaders, x)
        for mate in mates:
            comm.send(x, mate)
    else:
        comm.recv(x, first[comm.rank])


def over_all_ranks(comm, x):
    all_reduce(comm, x, algorithm="ring")


def hierarchical_from_the_library(comm, x):
    all_reduce(comm, x, algorithm="hierarchical")


def nodes_by_gloo(comm, x):
    comm.native.all_reduce(x)


def leaders_keep_it(comm, x):
    home = comm.split(comm.node)
    leaders = comm.split(0 if home.rank == 0 else None)
    reduce(home, x)
    if leaders:
        all_reduce(leaders, x)


def nodes_do_not_talk(comm, x):
    all_reduce(comm.split(comm.node), x)


def everyone_across(comm, x):
    home = comm.split(comm.node)
    all_reduce(home, x)
    all_reduce(comm.split(home.rank), x)


def two_ranks_a_node(comm, x):
    home = comm.split(comm.rank // 2)
    leaders = comm.split(comm.rank % 2)
    reduce(home, x)
    if home.rank == 0:
        all_reduce(leaders, x)
    broadcast(home, x)


def everyone_leads(comm, x):
    home = comm.split(comm.node)
    leaders = comm.split(0)
    reduce(home, x)
    all_reduce(leaders, x)
    broadcast(home, x)


def all_in_the_middle(comm, x):
    home = comm.split(comm.node)
    leaders = comm.split(0 if home.rank == 0 else None)
    reduce(home, x)
    all_reduce(leaders, x)
    broadcast(home, x)


def broadcast_to_all(comm, x):
    home = comm.split(comm.node)
    leaders = comm.split(0 if home.rank == 0 else None)
    reduce(home, x)
    if leaders:
        reduce(leaders, x)
    broadcast(comm, x)


# The bug


def bug_still_there(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        comm.exchange(mine, right, theirs, left)


def receives_from_the_right(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p - 1):
        mine, theirs = chunks[(right - i) % p], chunks[(comm.rank - i) % p]
        comm.exchange(mine, right, theirs, right)


def one_side_repaired(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p - 1):
        mine, theirs = chunks[(right - i) % p], chunks[(left - 1 - i) % p]
        comm.exchange(mine, right, theirs, left)


def goes_round_once_more(comm, x):
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p):
        mine, theirs = chunks[(right - i) % p], chunks[(comm.rank - i) % p]
        comm.exchange(mine.clone(), right, theirs, left)


def asks_who_has_it(comm, x):
    """Gives up the second round: the owner of a finished chunk tells everybody."""
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(1, p):
        ahead, behind = (comm.rank + i) % p, (comm.rank - i) % p
        comm.exchange(chunks[right], ahead, chunks[(behind + 1) % p], behind)


def repaired_otherwise(comm, x):
    """The chunks are numbered from the right neighbour from the start."""
    p, chunks = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for i in range(p - 1):
        mine, theirs = chunks[(left - i) % p], chunks[(left - 1 - i) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs += landing
    for i in range(p - 1):
        mine, theirs = chunks[(comm.rank - i) % p], chunks[(left - i) % p]
        comm.exchange(mine, right, theirs, left)


GALLERIES = [
    Gallery(
        "ring_beats_doubling",
        ...,
        [465_306, 4.65e5, torch.tensor(467_000)],
        {
            "bytes are wanted, not megabytes.": 0.465,
            "bytes are wanted, not kilobytes.": 465,
            "bytes are wanted, and that is bits: 10 Gb/s are 1.25 GB/s.": 3_722_449,
            "8 times too few: 10 Gb/s are 1.25 GB/s, so bits became bytes twice.": 58_163,
            "bytes are wanted, and that is numbers of 4 bytes.": 116_326,
            "the ring goes round twice: 2(p - 1) steps.": 212_245,
            "that is halving-doubling's 2 lg p steps.": 40_816,
            "that is alpha / beta: now count steps and bytes.": 25_000,
            "with 1e+06 bytes doubling takes 4100 µs and the ring 2790 µs": 1_000_000,
            "a number is wanted, not '0.47 MB'.": "0.47 MB",
        },
    ),
    Gallery(
        "halving_doubling_ms",
        ...,
        [0.265, 0.2651, torch.tensor(0.265)],
        {
            "milliseconds are wanted, not seconds.": 265e-6,
            "milliseconds are wanted, not microseconds.": 265,
            "that is the ring's time: halving-doubling has 2 lg p steps.": 0.385,
            "halving-doubling goes there and back: 2 lg p steps.": 0.22,
            "that is recursive doubling; halving-doubling sends 2(p - 1)/p of x.": 0.345,
            "the 0.21 ms are 2(p - 1) = 14 latencies of the ring, not one.": 1.435,
            "the ring goes round twice: the 0.21 ms are 14 latencies, not 7.": 0.355,
            "of 80 MB the ring sends 2(p - 1)/p from each rank": 0.09 + 0.30625,
            "these are the bytes alone: there are 2 lg p latencies, too.": 0.175,
            "these are the latencies alone: there are bytes, too.": 0.09,
            "with 0.5 ms, after 6 latencies of 15 µs 0.41 ms would be left": 0.5,
            "a number is wanted, not '0.265 ms'.": "0.265 ms",
        },
    ),
    Gallery(
        "any_number_of_ranks",
        doubling_of_powers_of_two,
        [any_number_of_ranks, guests_first],
        {
            "on 3 ranks, element 0 of rank 1 lacks the number of rank 2.": (
                doubling_skips_who_is_not_there
            ),
            "on 3 ranks, element 0 of rank 0 has the number of rank 0 more than once": (
                doubling_modulo
            ),
            "on 3 ranks, element 0 of rank 2 is its own number still.": doubling_forgets_the_guests,
            "on 3 ranks, element 0 of rank 0 lacks the number of rank 2.": (
                doubling_ignores_the_guests
            ),
            "8 imagined ranks took as long as 6 messages of x one after another, where 3": (
                tree_up_and_down
            ),
            "the sums of ranks 0 and 1 differ in their last bits.": round_in_whole_vectors,
            "8 imagined ranks took as long as 7 messages of x": whole_vectors_in_order,
            "8 imagined ranks took as long as 5 messages of x one after another": (
                doubling_on_one_rank_too_few
            ),
            "x itself has to change: do not return another tensor.": sum_into_another,
            "on 3 ranks, element 0 of rank 0 is the mean, not the sum.": mean_instead,
            "all_reduce does the work for you here: build it from messages.": from_the_library,
        },
    ),
    Gallery(
        "sum_round_the_ring",
        ring_stub,
        [sum_round_the_ring, ring_with_handles, ring_with_other_cuts],
        {
            "on 4 ranks, rank 0 sent 3 times the bytes of x, where 2(p - 1)/p = 1.5 are enough": (
                whole_vectors_in_order
            ),
            "4 ranks with 10 elements sent 576 bytes, where 480 are enough: chunks may differ": (
                ring_of_padded_chunks
            ),
            "on 2 ranks, element 0 of rank 0 is its own number still.": (
                ring_without_the_second_round
            ),
            "on 2 ranks, element 0 of rank 0 has the number of rank 0 more than once": (
                ring_that_adds_twice
            ),
            "right on 2 ranks only: on 4 ranks, element 0 of rank 0 lacks": ring_for_two,
            "the ranks wait for one another (on 2 ranks)": ring_that_sends_first,
            "rank 0 sends to rank 3: its left neighbour.": ring_to_the_left,
            "on 4 ranks, rank 0 sent 18 messages, not 6.": ring_in_small_pieces,
            "all_gather does the work for you here: build it": ring_of_two_collectives,
            "native.all_reduce does the work for you here: build it": from_gloo,
            "x itself has to change: do not return another tensor.": sum_into_another,
        },
    ),
    Gallery(
        "sum_over_nodes",
        nodes_stub,
        [sum_over_nodes, over_nodes_in_chunks],
        {
            "nodes [0, 0, 1, 1], 3 times the bytes of x went between nodes, where 2": (
                over_all_ranks
            ),
            "algorithm='hierarchical' does the work for you here.": hierarchical_from_the_library,
            "native.all_reduce does the work for you here": nodes_by_gloo,
            "on 4 ranks, element 0 of rank 1 is its own number still.": leaders_keep_it,
            "on 4 ranks, element 0 of rank 0 lacks the number of ranks 2, 3.": nodes_do_not_talk,
            "nodes [0, 0, 1, 1], 4 times the bytes of x went between nodes, where 2": (
                everyone_across
            ),
            "nodes [0, 1, 0, 1], 4 times the bytes of x": two_ranks_a_node,
            "on 4 ranks, element 0 of rank 0 has the number of ranks 1, 3 more than once": (
                everyone_leads
            ),
            "AttributeError: 'NoneType' object has no attribute": all_in_the_middle,
            "3 times the bytes of x went between nodes, where 2 are enough": broadcast_to_all,
        },
    ),
    Gallery(
        "pass_the_sums_on",
        pass_the_sums_on_wrongly,
        [pass_the_sums_on, repaired_otherwise],
        {
            "on 2 ranks, element 0 of rank 0 is its own number still.": bug_still_there,
            "the ranks wait for one another (on 4 ranks) (it is right on 2 ranks only)": (
                receives_from_the_right
            ),
            "on 4 ranks, element 0 of rank 0 lacks the number of ranks 0, 1.": one_side_repaired,
            "on 2 ranks, rank 0 sent 1.5 times the bytes of x": goes_round_once_more,
            "on 4 ranks, rank 0 sends to rank 2: no neighbour.": asks_who_has_it,
            "all_reduce does the work for you here": from_the_library,
            "480 are enough: chunks may differ in length.": ring_of_padded_chunks,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_a_time_between_two_numbers_of_messages_is_told_as_that():
    assert [whole(steps) for steps in (6.0, 6.2, 5.999)] == ["6", "6 to 7", "6"]
