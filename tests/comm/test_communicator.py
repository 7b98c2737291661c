import itertools
import time

import numpy
import pytest
import torch

from course.collectives import all_reduce, all_to_all, gather, scatter
from course.comm import ANY, CommError
from course.comm.tensors import DTYPES
from course.worlds import run
from course.worlds.sockets.receiving import SHORT_BYTES
from course.worlds.sockets.sending import SHM_FROM_BYTES
from course.worlds.sockets.shm_ring import RING_BYTES

LARGE = 700_001  # doubles: more than any socket buffer, and than a ring in memory
SIZES = [0, 1, 2, 7, 101, SHORT_BYTES // 8 - 1, SHORT_BYTES // 8 + 1, SHM_FROM_BYTES // 8 - 1,
         SHM_FROM_BYTES // 8, RING_BYTES // 8, RING_BYTES // 8 + 1, LARGE]  # fmt: skip

VIEWS = {
    "the whole": lambda parent: parent,
    "a row": lambda parent: parent[1],
    "a column": lambda parent: parent[:, 3],
    "transposed": lambda parent: parent.T,
    "a transposed part": lambda parent: parent[1:4, 2:7].T,
    "with steps": lambda parent: parent[::2, 1::3],
    "0-dim": lambda parent: parent[2, 5],
    "one element of a column": lambda parent: parent[2:3, 5],
    "empty": lambda parent: parent[:, 2:2],
}


def guarded(dtype):
    """A 6 x 8 tensor that no value sent below equals anywhere: NaN where there is such a thing."""
    guard = float("nan") if dtype.is_floating_point or dtype.is_complex else 1
    return torch.full((6, 8), guard, dtype=dtype) * (1 if dtype == torch.bool else 99)


def values(shape, dtype):
    """Different numbers, all exact in any dtype; the false ones for bool."""
    if dtype == torch.bool:
        return torch.zeros(shape, dtype=dtype)
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    return numbers * (1 - 2j) if dtype.is_complex else numbers


def told(act, *args) -> str:
    """What a call says that must fail."""
    try:
        act(*args)
    except CommError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def same_bits(a, b) -> bool:
    flat = [torch.cat([x.reshape(-1)]).view(torch.uint8) for x in (a, b)]
    return a.dtype == b.dtype and torch.equal(*flat)


def ramp(comm_rank, size, use=0):
    return torch.arange(size, dtype=torch.float64) + 1000 * comm_rank + 0.5 * use


# What travels


def send_and_receive_views(comm):
    wrong = []
    for dtype, (name, view) in itertools.product(DTYPES, VIEWS.items()):
        before, expected, parent = guarded(dtype), guarded(dtype), guarded(dtype)
        view(expected).copy_(values(view(expected).shape, dtype))
        if comm.rank == 0:
            comm.send(view(expected), 1)
            comm.send(view(expected), 1)
        else:
            plain = torch.empty_like(view(parent), memory_format=torch.contiguous_format)
            comm.recv(view(parent), 0)
            comm.recv(plain, 0)
            if not same_bits(parent, expected) or not same_bits(plain, view(expected)):
                wrong.append((dtype, name))
            if plain.numel() and same_bits(parent, before):
                wrong.append((dtype, name, "nothing came"))
    return wrong


def test_every_dtype_and_view_arrives_and_its_neighbours_stay(on):
    assert run(send_and_receive_views, 2, on=on(2)) == [[], []]


def send_unusual_views(comm):
    numbers = values([3, 4], torch.complex64)
    sent = [
        torch.arange(3.0).expand(4, 3),
        numbers.conj(),
        numbers.conj().imag,  # its negative bit is set
        numbers.real,
        torch.arange(4.0, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2, 2)),
        torch.arange(12.0).reshape(3, 4)[:, 1:2],  # contiguous in no dimension but its length 1
        torch.arange(6.0).reshape(2, 3).to(memory_format=torch.contiguous_format).T.T,
    ]
    heard = []
    for x in sent:
        if comm.rank == 0:
            comm.send(x, 1)
        else:
            out = torch.full(x.shape, 77, dtype=x.dtype)
            comm.recv(out, 0)
            heard.append(torch.equal(out, x.detach()))
    return heard


def test_expanded_conjugate_negative_and_tracked_tensors_are_sent_by_value(on):
    assert run(send_unusual_views, 2, on=on(2))[1] == [True] * 8


def receive_into_unusual_views(comm):
    numbers = values([3, 4], torch.complex64)
    if comm.rank == 0:
        for x in (numbers, numbers.imag, torch.arange(6.0), torch.arange(3.0), torch.ones(3)):
            comm.send(x, 1)
        return None
    conj, neg = torch.zeros(3, 4, dtype=torch.complex64), torch.zeros(3, 4, dtype=torch.complex64)
    leaf, tracked = torch.zeros(2, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
    derived, parent = tracked * 2, torch.zeros(3, 4, requires_grad=True)
    comm.recv(conj.conj(), 0)
    comm.recv(neg.conj().imag, 0)
    comm.recv(leaf, 0)
    comm.recv(derived, 0)
    comm.recv(parent[:, 1], 0)
    return {
        "conjugate": torch.equal(conj, numbers.conj().resolve_conj()),
        "negative": torch.equal(neg.imag, -numbers.imag) and not neg.real.any(),
        "leaf": leaf.is_leaf and leaf.requires_grad and leaf.tolist() == [[0, 1, 2], [3, 4, 5]],
        "derived": derived.tolist() == [0, 1, 2] and derived.grad_fn is not None,
        "a column of a leaf": parent.sum(0).tolist() == [0, 3, 0, 0] and parent.is_leaf,
        "untouched": tracked.tolist() == [0, 0, 0],
    }


def test_conjugate_negative_and_tracked_tensors_are_received_into(on):
    assert all(run(receive_into_unusual_views, 2, on=on(2))[1].values())


# How much, and how often


def exchange_round_the_ring(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    wrong = []
    for size in SIZES:
        out = torch.empty(size, dtype=torch.float64)
        for use in range(5):
            source = comm.exchange(ramp(comm.rank, size, use), right, out, left, tag=use)
            if source != left or not torch.equal(out, ramp(left, size, use)):
                wrong.append((size, use))
    return wrong


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_exchange_is_right_at_any_size_and_any_number_of_uses(on, ranks, checked):
    assert run(exchange_round_the_ring, ranks, on=on(ranks), checked=checked) == [[]] * ranks


def everyone_to_everyone(comm):
    outs = [torch.zeros(LARGE // 7, dtype=torch.float64) for _ in range(comm.size)]
    receives = [comm.irecv(out, src, tag=5) for src, out in enumerate(outs)]
    sends = [comm.isend(ramp(comm.rank * 10 + dst, LARGE // 7), dst, 5) for dst in range(comm.size)]
    sources = [handle.wait() for handle in reversed(receives)]
    ends = [handle.wait() for handle in sends]
    right = [torch.equal(o, ramp(s * 10 + comm.rank, LARGE // 7)) for s, o in enumerate(outs)]
    again = [handle.wait() for handle in receives]
    return sources, ends, right, again


def test_all_messages_may_be_under_way_at_once(on):
    for sources, ends, right, again in run(everyone_to_everyone, 4, on=on(4)):
        assert sources == [3, 2, 1, 0] and again == [0, 1, 2, 3]
        assert ends == [None] * 4 and all(right)


def small_and_large_in_turn(comm):
    sizes = [3, LARGE, 5, SHM_FROM_BYTES // 8, 1, LARGE // 3, 0, SHORT_BYTES // 8 + 1] * 2
    if comm.rank == 0:
        for handle in [comm.isend(ramp(i, size), 1) for i, size in enumerate(sizes)]:
            handle.wait()
        return None
    came = []
    for size in sizes:
        came.append(torch.empty(size, dtype=torch.float64))
        comm.recv(came[-1], 0)
    return [torch.equal(x, ramp(i, size)) for i, (x, size) in enumerate(zip(came, sizes))]


def test_messages_of_one_tag_keep_their_order_by_whatever_way_they_come(on):
    assert all(run(small_and_large_in_turn, 2, on=on(2))[1])


# Which message


def tags_backwards(comm, sizes):
    if comm.rank == 0:
        handles = [comm.isend(ramp(tag, size), 1, tag) for tag, size in enumerate(sizes)]
        return [handle.wait() for handle in handles]
    outs = [torch.empty(size, dtype=torch.float64) for size in sizes]
    for tag in reversed(range(len(sizes))):
        comm.recv(outs[tag], 0, tag)
    return [torch.equal(out, ramp(tag, len(out))) for tag, out in enumerate(outs)]


@pytest.mark.parametrize("checked", [True, False])
def test_a_tag_can_be_received_before_one_that_was_sent_earlier(on, checked):
    for sizes in ([LARGE, 1], [LARGE, LARGE], [1, LARGE, 10_000, LARGE, 1]):
        heard = run(tags_backwards, 2, sizes, on=on(2), checked=checked)[1]
        assert heard == [True] * len(sizes)


def from_anyone(comm):
    if comm.rank:
        comm.send(ramp(comm.rank, 1000 * comm.rank), 0, tag=comm.rank)
        comm.send(torch.tensor(float(comm.rank)), 0)
        return None
    tagged = torch.empty(3000, dtype=torch.float64), torch.empty(1000, dtype=torch.float64)
    sources = [comm.recv(tagged[0], ANY, tag=3), comm.recv(tagged[1], ANY, tag=1)]
    comm.recv(torch.empty(2000, dtype=torch.float64), 2, tag=2)
    heard = {}
    for _ in range(1, comm.size):
        x = torch.empty(())
        source = comm.recv(x, ANY)
        heard[source] = x.item()
    return sources, heard, [torch.equal(x, ramp(s, len(x))) for s, x in zip(sources, tagged)]


def test_a_message_from_any_rank_says_where_it_came_from(on):
    sources, heard, right = run(from_anyone, 4, on=on(4))[0]
    assert sources == [3, 1] and all(right)
    assert heard == {1: 1.0, 2: 2.0, 3: 3.0}


def to_oneself(comm):
    here, early, x = comm.rank, torch.empty(LARGE, dtype=torch.float64), ramp(comm.rank, LARGE)
    posted = comm.irecv(early, here, tag=9)
    for tag in (2, 2, 9):
        comm.send(x, here, tag)
        x += 1  # the message is not this tensor any more
    outs = [torch.empty(LARGE, dtype=torch.float64) for _ in range(2)]
    sources = [comm.recv(outs[0], here, 2), comm.recv(outs[1], ANY, 2), posted.wait()]
    starts = [out[0].item() - 1000 * here for out in (*outs, early)]
    return sources == [here] * 3, starts


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_message_to_oneself_is_what_was_sent(ranks):
    assert run(to_oneself, ranks) == [(True, [0.0, 1.0, 2.0])] * ranks


def ranks_in_other_clothes(comm):
    out, peer = torch.zeros(2), 1 - comm.rank
    names = [numpy.int64(peer), torch.tensor(peer), peer]
    return [comm.exchange(torch.ones(2), name, out, name) == peer for name in names]


def test_a_rank_may_be_any_whole_number():
    assert run(ranks_in_other_clothes, 2) == [[True] * 3] * 2


def overtake_in_a_ring(comm, large, small):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    first, second = (torch.empty(size, dtype=torch.float64) for size in (large, small))
    begun = comm.isend(ramp(comm.rank, large, 1), right, tag=1)
    comm.exchange(ramp(comm.rank, small, 2), right, second, left, tag=2)
    comm.recv(first, left, tag=1)
    begun.wait()
    return [torch.equal(first, ramp(left, large, 1)), torch.equal(second, ramp(left, small, 2))]


@pytest.mark.parametrize("checked", [True, False])
def test_an_exchange_overtakes_what_nobody_has_asked_for_yet(on, checked):
    """The first wire cleared the way for what it waited for, the end of its send, but not for the
    receive that was posted beside it: on all ranks at once that is a deadlock."""
    for small in (1, LARGE):
        heard = run(overtake_in_a_ring, 3, 2 * LARGE, small, on=on(3), checked=checked, timeout=5)
        assert heard == [[True, True]] * 3


def trade_with_one_that_fails(comm, n):
    """Within a call; rank 1 fails before it trades with anyone."""
    with comm.collective("trade"):
        if comm.rank == 1:
            raise ZeroDivisionError
        comm.exchange(torch.ones(n), 1, torch.empty(n), 1)


def fail_and_split(comm, n):
    try:
        first = told(trade_with_one_that_fails, comm, n)
    except ZeroDivisionError:
        first = "this one"
    group, x = comm.split(comm.rank % 2), torch.ones(n)
    all_reduce(comm, x)
    return first, group.size, x[0].item()


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("n", [4, LARGE])
@pytest.mark.parametrize("ranks", [2, 3])
def test_after_an_error_of_one_rank_in_a_call_all_can_go_on(on, ranks, n, checked):
    """The others waited in it until the time-out, and so did this one in its next call."""
    found = run(fail_and_split, ranks, n, on=on(ranks), timeout=10, checked=checked)
    heard = "CommMismatch: rank 1 has left trade #1 before its end: ZeroDivisionError()"
    assert [first for first, *_ in found] == [heard, "this one", heard][:ranks]
    assert [rest for _, *rest in found] == [[(ranks + 1 - r % 2) // 2, ranks] for r in range(ranks)]


# Groups


def describe(comm):
    return comm and (comm.rank, comm.size, comm.members, comm.node, comm.nodes, comm.name)


def split_by_what_is_equal(comm):
    """One number in three spellings, and a colour that looks like a name of the package's."""
    group = comm.split([1, 1.0, True][comm.rank])
    beside = comm.split("x, beside")
    groups = []
    for each in (group, beside, comm.split("background")):
        each.barrier()
        shared = each.node_memory() is not None
        wrong = told(each.recv, torch.zeros(1), 2) if comm.rank == 1 else told(each.barrier)
        groups.append((each.size, shared, "rank 1 is in recv from rank 2" in wrong))
    comm.barrier()  # who returns first would be what the others are told of
    return groups, group.name


def test_colors_that_are_equal_make_one_group_and_no_color_decides_what_a_group_can_do():
    """The name of a group decided once: "x, beside" had no shared memory and was not checked."""
    found = run(split_by_what_is_equal, 3, timeout=10)
    assert found == [([(3, True, True)] * 3, "world/1:1")] * 3


# After a mismatch


def go_wrong(comm, which):
    """Every rank has other lengths in mind."""
    ones = [torch.ones(2 * (comm.rank + 1)) for _ in range(comm.size)]
    if which == "all_to_all":
        all_to_all(comm, [x.clone() for x in ones], ones)
    elif which == "gather":
        gather(comm, ones[0], [torch.ones(2) for _ in ones] if comm.rank == 0 else None)
    elif which == "scatter":
        parts = [torch.ones(2), *(torch.ones(5) for _ in ones[1:])]
        scatter(comm, torch.ones(2), parts if comm.rank == 0 else None)
    else:
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.exchange(ones[0], after, torch.ones(2 * comm.rank + 2), before)


def go_wrong_and_on(comm, which):
    first = told(go_wrong, comm, which)
    x = torch.full((4,), float(comm.rank))
    return first, [told(comm.barrier) for _ in range(3)], told(all_reduce, comm, x), x[3].item()


@pytest.mark.parametrize("which", ["all_to_all", "gather", "scatter", "exchange"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_after_a_mismatch_that_all_have_caught_all_go_on(on, which, ranks):
    """The next call hung, or was blamed for it: one rank had left, and the others waited in it."""
    found = run(go_wrong_and_on, ranks, which, on=on(ranks), timeout=10)
    assert any("CommMismatch" in first for first, *_ in found)
    goes_on = (["nothing"] * 3, "nothing", ranks * (ranks - 1) / 2)
    assert [rest for _, *rest in found] == [list(goes_on)] * ranks


# Groups


def split_in_many_ways(comm):
    halves = comm.split(comm.rank // 2)
    return {
        "halves": describe(halves),
        "backwards": describe(comm.split("all", key=-comm.rank)),
        "some": describe(comm.split(None if comm.rank == 1 else 0)),
        "alone": describe(comm.split(comm.rank)),
        "nested": describe(halves.split(0, key=-halves.rank)),
        "the same again": describe(comm.split(comm.rank // 2)),
        "tuples": describe(comm.split((0, ("a", comm.rank % 2)))),
        "odd numbers": describe(comm.split(numpy.int64(3), key=torch.tensor(-comm.rank))),
    }


def test_split_orders_a_group_by_key_and_leaves_out_who_gives_none():
    from course.worlds import processes

    said = run(split_in_many_ways, 4, on=processes(nodes=(7, 7, 8, 8)))
    assert said[2]["halves"] == (0, 2, (2, 3), 8, (8, 8), "world/1:1")
    assert [s["backwards"][:3] for s in said] == [(3 - r, 4, (3, 2, 1, 0)) for r in range(4)]
    assert said[0]["backwards"][3:5] == (7, (8, 8, 7, 7))
    assert [s["some"] and s["some"][0] for s in said] == [0, None, 1, 2]
    assert [s["alone"][:3] for s in said] == [(0, 1, (r,)) for r in range(4)]
    assert [s["nested"][:3] for s in said] == [(1, 2, (1, 0)), (0, 2, (1, 0)),
                                               (1, 2, (3, 2)), (0, 2, (3, 2))]  # fmt: skip
    assert [s["tuples"][2] for s in said] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert [s["odd numbers"][:3] for s in said] == [s["backwards"][:3] for s in said]
    names = [s[key][-1] for s in said for key in s if s[key]]
    assert len(set(names)) == 2 + 1 + 1 + 4 + 2 + 2 + 2 + 1  # no two groups share a name


def same_pair_same_tag_in_three_groups(comm):
    pair = comm.split(comm.rank // 2)
    twin = comm.split(comm.rank // 2, key=-comm.rank)
    me, outs = comm.rank, [torch.empty(LARGE // 4, dtype=torch.float64) for _ in range(4)]
    peer = me ^ 1
    sends = [
        comm.isend(ramp(me, LARGE // 4, 1), peer),
        pair.isend(ramp(me, LARGE // 4, 2), peer % 2),
    ]
    sends.append(twin.isend(ramp(me, LARGE // 4, 3), twin.members.index(peer)))
    sources = [twin.recv(outs[2], ANY), pair.recv(outs[1], ANY), comm.recv(outs[0], ANY)]
    for handle in sends:
        handle.wait()
    right = [torch.equal(outs[i], ramp(peer, LARGE // 4, i + 1)) for i in range(3)]
    return right, sources == [twin.members.index(peer), peer % 2, peer]


def test_messages_of_groups_never_mix(on):
    assert run(same_pair_same_tag_in_three_groups, 4, on=on(4)) == [([True] * 3, True)] * 4


def meet_often(comm):
    times = []
    for number in range(20):
        if number % comm.size == comm.rank:
            torch.randn(100, 100).matrix_power(3)  # someone is always late
        before = time.monotonic()
        comm.barrier()
        times.append((before, time.monotonic()))
    return times


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_nobody_leaves_a_barrier_before_all_have_come(ranks, checked):
    for meeting in zip(*run(meet_often, ranks, checked=checked)):
        came, left = zip(*meeting)
        assert max(came) <= min(left)


def all_calls(comm):
    x, out = torch.ones(3), torch.zeros(3)
    comm.barrier()
    with comm.collective("nothing", x, root=0):
        comm.exchange(x, 0, out, 0)
    group = comm.split("me")
    group.barrier()
    handle = comm.isend(x, 0, 4)
    comm.native.all_reduce(x)
    comm.recv(out, 0, 4)
    handle.wait()
    return repr(comm), group.size, x.tolist(), str(comm.device)


def test_a_world_of_one_has_every_call():
    expected = ("<rank 0 of 1 in world, node 0>", 1, [1.0, 1.0, 1.0], "cpu")
    assert run(all_calls, 1) == [expected]


def meet_with_a_dtype_of_ones_own(comm):
    torch.set_default_dtype(torch.float64 if comm.rank else torch.float32)
    before = comm.clock()
    comm.barrier()
    return comm.clock() >= before


def test_a_barrier_does_not_ask_what_ranks_compute_in():
    """Its empty messages had the rank's default dtype: ranks that differed in it did not meet."""
    assert run(meet_with_a_dtype_of_ones_own, 3) == [True] * 3
