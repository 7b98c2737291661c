"""Trees, rings, a sum to the last bit, a ring that hangs: answers that were really likely."""

import torch

from course.classroom.problems.p09_collectives import (
    check_pass_right,
    pass_right,
    pass_right_hangs,
    sum_everywhere,
)
from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
)
from tests.classroom.gallery import Gallery, gallery_tests

# The tree


def tree_stub(comm, x, root):
    """Every rank's x becomes the root's x."""
    raise NotImplementedError


def tree_by_doubling(comm, x, root):
    me, have = (comm.rank - root) % comm.size, 1
    while have < comm.size:
        if me < have and me + have < comm.size:
            comm.send(x, (comm.rank + have) % comm.size)
        elif have <= me < 2 * have:
            comm.recv(x, (comm.rank - have) % comm.size)
        have *= 2


def tree_by_halves(comm, x, root):
    """Top down: whoever has x for ranks [low, high) gives the upper half to its first rank."""
    me, low, high = (comm.rank - root) % comm.size, 0, comm.size
    while high - low > 1:
        middle = (low + high + 1) // 2
        if me == low:
            comm.send(x, (middle + root) % comm.size)
        elif me == middle:
            comm.recv(x, (low + root) % comm.size)
        low, high = (low, middle) if me < middle else (middle, high)


def flat(comm, x, root):
    if comm.rank != root:
        return comm.recv(x, root)
    for other in range(comm.size):
        if other != root:
            comm.send(x, other)


def chain(comm, x, root):
    me = (comm.rank - root) % comm.size
    if me > 0:
        comm.recv(x, (comm.rank - 1) % comm.size)
    if me < comm.size - 1:
        comm.send(x, (comm.rank + 1) % comm.size)


def tree_from_rank_0(comm, x, root):
    have = 1
    while have < comm.size:
        if comm.rank < have and comm.rank + have < comm.size:
            comm.send(x, comm.rank + have)
        elif have <= comm.rank < 2 * have:
            comm.recv(x, comm.rank - have)
        have *= 2


def tree_for_powers_of_two(comm, x, root):
    me, have = (comm.rank - root) % comm.size, 1
    while have < comm.size:
        if me < have:
            comm.send(x, (me + have + root) % comm.size)
        elif me < 2 * have:
            comm.recv(x, (me - have + root) % comm.size)
        have *= 2


def tree_to_a_copy(comm, x, root):
    copy = x.clone()
    tree_by_doubling(comm, copy, root)
    return copy


def tree_one_level(comm, x, root):
    if comm.rank == root and comm.size > 1:
        comm.send(x, (root + 1) % comm.size)
    elif comm.rank == (root + 1) % comm.size:
        comm.recv(x, root)


def tree_as_a_heap(comm, x, root):
    me = (comm.rank - root) % comm.size
    if me:
        comm.recv(x, ((me - 1) // 2 + root) % comm.size)
    for child in 2 * me + 1, 2 * me + 2:
        if child < comm.size:
            comm.send(x, (child + root) % comm.size)


def tree_of_rows(comm, x, root):
    for row in x.reshape(3, 5):
        tree_by_doubling(comm, row, root)


def tree_from_the_library(comm, x, root):
    broadcast(comm, x, root)


# The ring


def ring_stub(comm, outs, x):
    """outs[r] becomes the x of rank r."""
    pass


def ring_with_handles(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank][:] = x
    for step in range(comm.size - 1):
        incoming = comm.irecv(outs[(left - step) % comm.size], left)
        outgoing = comm.isend(outs[(comm.rank - step) % comm.size], right)
        incoming.wait(), outgoing.wait()


def ring_of_odd_and_even(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for step in range(comm.size - 1):
        mine, theirs = outs[(comm.rank - step) % comm.size], outs[(left - step) % comm.size]
        if comm.rank % 2:
            comm.send(mine, right)
            comm.recv(theirs, left)
        else:
            comm.recv(theirs, left)
            comm.send(mine, right)


def ring_to_the_left(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for step in range(comm.size - 1):
        mine, theirs = (comm.rank + step) % comm.size, (right + step) % comm.size
        comm.exchange(outs[mine], left, outs[theirs], right)


def everyone_to_everyone(comm, outs, x):
    outs[comm.rank].copy_(x)
    for step in range(1, comm.size):
        dst, src = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
        comm.exchange(x, dst, outs[src], src)


def ring_of_own_parts(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for step in range(comm.size - 1):
        comm.exchange(x, right, outs[(left - step) % comm.size], left)


def ring_off_by_one(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    travelling = x.clone()
    for step in range(comm.size - 1):
        comm.exchange(travelling.clone(), right, travelling, left)
        outs[(comm.rank - step) % comm.size].copy_(travelling)


def ring_without_own(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mine = x
    for step in range(comm.size - 1):
        comm.exchange(mine, right, outs[(left - step) % comm.size], left)
        mine = outs[(left - step) % comm.size]


def ring_that_replaces(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank] = x
    for step in range(comm.size - 1):
        mine, theirs = outs[(comm.rank - step) % comm.size], outs[(left - step) % comm.size]
        comm.exchange(mine, right, theirs, left)


def ring_once_more(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for step in range(comm.size):
        comm.exchange(
            outs[(comm.rank - step) % comm.size].clone(), right,
            outs[(left - step) % comm.size], left,
        )  # fmt: skip


def ring_too_short(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for step in range(comm.size - 2):
        comm.exchange(
            outs[(comm.rank - step) % comm.size], right, outs[(left - step) % comm.size], left
        )


def ring_for_equal_parts(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    travelling = x.clone()
    for step in range(comm.size - 1):
        received = torch.empty_like(x)
        comm.exchange(travelling, right, received, left)
        outs[(left - step) % comm.size].copy_(received)
        travelling = received


def ring_that_sends_first(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for step in range(comm.size - 1):
        comm.send(outs[(comm.rank - step) % comm.size], right)
        comm.recv(outs[(left - step) % comm.size], left)


def one_part_at_a_time(comm, outs, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs[comm.rank].copy_(x)
    for source, part in enumerate(outs):
        if comm.rank != source:
            comm.recv(part, left)
        if right != source:
            comm.send(part, right)


def ring_that_spoils_x(comm, outs, x):
    all_gather(comm, outs, x)
    x.zero_()


def ring_from_the_library(comm, outs, x):
    all_gather(comm, outs, x)


# The sum


def sum_stub(comm, x):
    """x becomes the sum of all ranks' x."""
    ...


def sum_by_transpose(comm, x):
    """Everybody adds up one part, in the order of ranks, and all pass the sums on."""
    parts = list(x.tensor_split(comm.size))
    mine = [torch.empty_like(parts[comm.rank]) for _ in range(comm.size)]
    all_to_all(comm, mine, parts)
    all_gather(comm, parts, sum(mine))


def sum_round_by_hand(comm, x):
    p, parts = comm.size, x.tensor_split(comm.size)
    right, left = (comm.rank + 1) % p, (comm.rank - 1) % p
    for step in range(2 * (p - 1)):
        mine, theirs = parts[(comm.rank - step) % p], parts[(left - step) % p]
        landing = torch.empty_like(theirs)
        comm.exchange(mine, right, landing, left)
        theirs.copy_(theirs + landing if step < p - 1 else landing)


def sum_by_trees(comm, x):
    reduce(comm, x)
    broadcast(comm, x)


def sum_at_rank_0(comm, x):
    if comm.rank > 0:
        comm.send(x, 0)
    else:
        theirs = torch.empty_like(x)
        for other in range(1, comm.size):
            comm.recv(theirs, other)
            x += theirs
    broadcast(comm, x)


def sum_on_one_only(comm, x):
    reduce(comm, x)


def mean_everywhere(comm, x):
    reduce(comm, x, "mean")
    broadcast(comm, x)


def everyones(comm, x):
    outs = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, outs, x)
    return outs


def sum_from_oneself_on(comm, x):
    outs = everyones(comm, x)
    for step in range(1, comm.size):
        x += outs[(comm.rank + step) % comm.size]


def sum_with_own_twice(comm, x):
    for part in everyones(comm, x):
        x += part


def sum_without_own(comm, x):
    outs = everyones(comm, x)
    x.zero_()
    for rank, part in enumerate(outs):
        if rank != comm.rank:
            x += part


def sum_of_everyones(comm, x):
    x.copy_(sum(everyones(comm, x)))


def sum_returned(comm, x):
    total = x.clone()
    sum_everywhere(comm, total)
    return total


def sum_from_the_library(comm, x):
    all_reduce(comm, x)


def sum_of_two_only(comm, x):
    outs = [torch.empty_like(x) for _ in range(comm.size)] if comm.rank == 0 else None
    gather(comm, x, outs)
    if comm.rank == 0 and comm.size > 1:
        x.copy_(outs[0] + outs[1])
    broadcast(comm, x)


# The ring that hangs


def hangs_still(comm, x, out):
    comm.recv(out, (comm.rank - 1) % comm.size)
    comm.send(x, (comm.rank + 1) % comm.size)


def rank_0_receives_first(comm, x, out):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if comm.rank == 0:
        comm.recv(out, left)
    comm.send(x, right)
    if comm.rank > 0:
        comm.recv(out, left)


def begins_before_it_receives(comm, x, out):
    outgoing = comm.isend(x, (comm.rank + 1) % comm.size)
    comm.recv(out, (comm.rank - 1) % comm.size)
    outgoing.wait()


def never_waits(comm, x, out):
    comm.isend(x, (comm.rank + 1) % comm.size)
    comm.recv(out, (comm.rank - 1) % comm.size)


def turns_left(comm, x, out):
    comm.exchange(x, (comm.rank - 1) % comm.size, out, (comm.rank + 1) % comm.size)


def stays_at_home(comm, x, out):
    out.copy_(x)


def overwrites_x(comm, x, out):
    comm.exchange(x.clone(), (comm.rank + 1) % comm.size, x, (comm.rank - 1) % comm.size)
    out.copy_(x)


def asks_everyone(comm, x, out):
    outs = [torch.empty_like(x) for _ in range(comm.size)]
    everyone_to_everyone(comm, outs, x)
    out.copy_(outs[(comm.rank - 1) % comm.size])


def in_two_pieces(comm, x, out):
    for piece, place in zip(x.split(2), out.split(2), strict=True):
        comm.exchange(piece, (comm.rank + 1) % comm.size, place, (comm.rank - 1) % comm.size)


def forgets_the_wrap(comm, x, out):
    comm.exchange(x, comm.rank + 1, out, (comm.rank - 1) % comm.size)


CHOSEN = ["broadcast", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all"]


def chosen(letter, name):
    """The right names, but for one."""
    return [name if letter == each else right for each, right in zip("abcdef", CHOSEN, strict=True)]


GALLERIES = [
    Gallery(
        "broadcast_steps",
        ...,
        [7, 7.0, torch.tensor(7)],
        {
            "99 messages, yes, but in one step many ranks send at once.": 99,
            "after 6 steps at most 64 ranks have x.": 6,
            "a step is whole: 6.644 of them cannot be.": 6.644,
            "they do not grow by two.": 50,
            "fewer than 14 steps are enough for 100 ranks.": 14,
            "a number is wanted, not 'seven'.": "seven",
            "nan says that it is none.": float("nan"),
        },
    ),
    Gallery(
        "choose_collectives",
        ...,
        [
            CHOSEN,
            ("Broadcast", "scatter", "reduce", "reduce-scatter", "all gather", "All-to-all"),
            [broadcast, "scatter", reduce, "reduce scatter", all_gather, all_to_all],
            "broadcast, scatter, reduce, reducescatter, allgather, alltoall",
        ],
        {
            "6 names are wanted, one for each job, not 5.": CHOSEN[:5],
            "(b): after broadcast, every rank has all that rank 0 had": chosen("b", "broadcast"),
            "(c): after all_reduce, every rank has the whole sum": chosen("c", "all_reduce"),
            "whole sum; here each rank needs the sum, but": chosen("d", "all-reduce"),
            "(e): after gather, only rank 0 has the parts of all": chosen("e", "gather"),
            "(a): none of the eight is called 'send'.": chosen("a", "send"),
        },
    ),
    Gallery(
        "tree_broadcast",
        tree_stub,
        [broadcast, tree_by_doubling, tree_by_halves],
        {
            "with 4 ranks and root 0, the root does all the sending, in 3 steps; 2 are": flat,
            "with 4 ranks and root 0, it takes 3 steps where 2 are enough": chain,
            "with 2 ranks and root 1, rank 0 holds its own x.": tree_from_rank_0,
            "a rank waits for one that has finished (on 5 ranks)": tree_for_powers_of_two,
            "x itself has to change: do not return another tensor.": tree_to_a_copy,
            "with 4 ranks and root 0, rank 2 holds its own x.": tree_one_level,
            "with 7 ranks and root 2, it takes 4 steps where 3 are enough": tree_as_a_heap,
            "with 4 ranks and root 0, 9 messages were sent where 3 are enough.": tree_of_rows,
            "broadcast does the work for you here": tree_from_the_library,
        },
    ),
    Gallery(
        "ring_all_gather",
        ring_stub,
        [all_gather, ring_with_handles, ring_of_odd_and_even],
        {
            "rank 0 sends to rank 3: its left neighbour.": ring_to_the_left,
            "rank 0 sends to rank 2: no neighbour.": everyone_to_everyone,
            "outs[1] of rank 0 holds the x of rank 3.": ring_of_own_parts,
            "outs[0] of rank 0 holds the x of rank 3.": ring_off_by_one,
            "outs[0] of rank 0 holds nothing yet.": ring_without_own,
            "puts another tensor into your list": ring_that_replaces,
            "on 4 ranks, rank 0 sent 4 messages, not 3.": ring_once_more,
            "outs[1] of rank 0 holds nothing yet.": ring_too_short,
            "the ranks do not do the same thing (on 2 ranks)": ring_for_equal_parts,
            "the ranks wait for one another (on 4 ranks)": ring_that_sends_first,
            "4 ranks took 9 steps: let all of them send at once.": one_part_at_a_time,
            "rank 0's own x was changed.": ring_that_spoils_x,
            "all_gather does the work for you here": ring_from_the_library,
        },
    ),
    Gallery(
        "sum_everywhere",
        sum_stub,
        [sum_everywhere, sum_by_transpose, sum_round_by_hand],
        {
            "on 4 ranks, rank 1 holds its own x still.": sum_on_one_only,
            "on 4 ranks, rank 0 holds the mean, not the sum.": mean_everywhere,
            "differ in their last bits": sum_from_oneself_on,
            "rank 0 holds the sum with its own x twice.": sum_with_own_twice,
            "rank 0 holds the sum without its own x.": sum_without_own,
            "on 4 ranks rank 0 sends 2 times the bytes of x, where 1.5 times are": sum_by_trees,
            "on 4 ranks rank 0 receives 3 times the bytes of x": sum_at_rank_0,
            "on 4 ranks rank 0 sends 3 times the bytes of x": sum_of_everyones,
            "x itself has to change: do not return another tensor.": sum_returned,
            "all_reduce does the work for you here": sum_from_the_library,
            "rank 0 holds another number.": sum_of_two_only,
        },
    ),
    Gallery(
        "broadcast_crossover",
        ...,
        [220_000, 219_999.5, 2.2e5],
        {
            "right in kB; the question asks for bytes.": 220,
            "right in MB; the question asks for bytes.": 0.22,
            "do not turn them into bits.": 1_760_000,
            "compare two whole broadcasts.": 25_000,
            "all-gather takes 7 more.": 80_000,
            "after the scatter each rank has only a part": 47_059,
            "in the all-gather each rank sends 7/8 of the bytes once more.": 129_412,
            "7 is one rank after another.": 33_333,
            "7/8 of the bytes, twice.": 275_000,
            "each carry 7/8 of N: together twice 7/8 N, not N.": 137_500,
            "they are not equal at 100,000 bytes.": 100_000,
        },
    ),
    Gallery(
        "pass_right",
        pass_right_hangs,
        [pass_right, rank_0_receives_first, begins_before_it_receives],
        {
            "the ranks wait for one another (on 4 ranks)": hangs_still,
            "has returned without a wait() for send to rank": never_waits,
            "out of rank 0 holds the x of rank 1; its left neighbour is rank 3.": turns_left,
            "out of rank 0 holds its own x; its left neighbour is rank 3.": stays_at_home,
            "rank 0's own x was changed.": overwrites_x,
            "rank 0 sends to rank 2: no neighbour.": asks_everyone,
            "rank 0 sent 2 messages, not 1.": in_two_pieces,
            "rank 3 in forgets_the_wrap, line 2 of your cell:  comm.exchange": forgets_the_wrap,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_a_ring_in_which_one_rank_receives_first_is_told_its_steps():
    assert check_pass_right(pass_right).endswith("all of them send in one step.")
    assert "its messages need 2 steps" in check_pass_right(rank_0_receives_first)
