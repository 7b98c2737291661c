import json

import pytest
import torch

from course.comm import ANY, Trace
from course.comm.trace import Event, Meter
from course.worlds import run

BYTES = 8  # of a double


def traced(fn, ranks, *args, **options):
    trace = Trace()
    run(fn, ranks, *args, trace=trace, **options)
    return trace


# Patterns: rank r sends x to whom and receives from whom, in which order


def ring(comm, n):
    """p - 1 rounds, in each of which everyone passes on what came before."""
    x, out = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        comm.exchange(x, right, out, left, tag=step)


def chain(comm, n):
    """Rank 0's data go down the line: nobody can pass on what has not come."""
    x = torch.zeros(n, dtype=torch.float64)
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.send(x, comm.rank + 1)


def tree(comm, n):
    """Everyone who has the data passes them on to someone who has not."""
    x, have = torch.zeros(n, dtype=torch.float64), 1
    while have < comm.size:
        if comm.rank < have and comm.rank + have < comm.size:
            comm.send(x, comm.rank + have)
        elif have <= comm.rank < 2 * have:
            comm.recv(x, comm.rank - have)
        have *= 2


def flat(comm, n):
    """All to rank 0, which then answers everyone."""
    outs = [torch.zeros(n, dtype=torch.float64) for _ in range(comm.size)]
    if comm.rank:
        comm.send(outs[0], 0)
        return comm.recv(outs[0], 0)
    for handle in [comm.irecv(outs[r], r) for r in range(1, comm.size)]:
        handle.wait()
    for handle in [comm.isend(outs[0], r) for r in range(1, comm.size)]:
        handle.wait()


def any_order(comm, n):
    """All to rank 0, which takes them as they come."""
    x = torch.zeros(n, dtype=torch.float64)
    if comm.rank:
        return comm.send(x, 0)
    for _ in range(comm.size - 1):
        comm.recv(x, ANY)


def everyone_to_everyone(comm, n):
    """In round s with the ranks s further and s back."""
    x, out = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    for s in range(1, comm.size):
        comm.exchange(x, (comm.rank + s) % comm.size, out, (comm.rank - s) % comm.size)


PATTERNS = {  # name: (pattern, rounds of p ranks, messages that each rank of p sends)
    "ring": (ring, lambda p: p - 1, lambda p: [p - 1] * p),
    "chain": (chain, lambda p: p - 1, lambda p: [1] * (p - 1) + [0]),
    "tree": (tree, lambda p: (p - 1).bit_length(),
             lambda p: {1: [0], 2: [1, 0], 3: [2, 0, 0], 4: [2, 1, 0, 0]}[p]),
    "flat": (flat, lambda p: 2 * (p - 1), lambda p: [p - 1] + [1] * (p - 1)),
    "any": (any_order, lambda p: p - 1, lambda p: [0] + [1] * (p - 1)),
    "everyone": (everyone_to_everyone, lambda p: p - 1, lambda p: [p - 1] * p),
}  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PATTERNS)
def test_rounds_bytes_and_messages_are_those_of_the_pattern(name, ranks):
    pattern, rounds, sends = PATTERNS[name]
    for n, checked in [(3, True), (50_001, False)]:
        trace = traced(pattern, ranks, n, checked=checked)
        assert trace.steps == rounds(ranks)
        assert trace.sent_messages == sends(ranks)
        assert trace.sent_bytes == [count * n * BYTES for count in sends(ranks)]
        assert len(trace.messages) == sum(sends(ranks))


def test_a_message_is_what_both_its_ends_say():
    trace = traced(ring, 3, 5)
    messages = trace.messages
    assert [(m.step, m.src, m.dst, m.tag, m.bytes) for m in messages] == [
        (step, src, (src + 1) % 3, step - 1, 40) for step in (1, 2) for src in range(3)
    ]
    sends = {(e.rank, e.tag): e for e in trace.events if e.operation == "send"}
    receives = {(e.rank, e.tag): e for e in trace.events if e.operation == "recv"}
    for m in messages:
        assert m.start == sends[m.src, m.tag].start and m.end == receives[m.dst, m.tag].end
        assert m.start < m.end


def at(rank, operation, peer, start, end, tag=0, nbytes=8):
    return Event(rank, operation, peer, tag, nbytes, start, end)


def played(ranks, *events):
    trace = Trace()
    trace.add(ranks, events)
    return trace


def test_rounds_do_not_depend_on_how_long_anything_took():
    """Rank 1 passes on to rank 2 what came from rank 0, quickly or late; 3 sends to 0 meanwhile."""
    for late in (0.0, 50.0):
        trace = played(
            4,
            at(0, "send", 1, 0, 1), at(1, "recv", 0, 0, 2 + late), at(3, "send", 0, 40, 41),
            at(1, "send", 2, 3 + late, 4 + late), at(2, "recv", 1, 1, 5 + late),
            at(0, "recv", 3, 2, 42),
        )  # fmt: skip
        assert [(m.step, m.src, m.dst) for m in trace.messages] == [(1, 0, 1), (1, 3, 0), (2, 1, 2)]


def test_a_rank_receives_one_message_a_round():
    sends = [at(src, "send", 0, 0, 1) for src in (1, 2, 3)]
    trace = played(4, *sends, *(at(0, "recv", src, 0, 9) for src in (1, 2, 3)))
    assert [m.step for m in trace.messages] == [1, 2, 3]


def test_a_message_that_was_never_received_is_sent_but_no_message():
    trace = played(2, at(0, "send", 1, 0, 1), at(0, "send", 1, 2, 3, tag=7), at(1, "recv", 0, 0, 2))
    assert trace.sent_messages == [2, 0] and len(trace.messages) == 1 and trace.steps == 1


def test_messages_with_the_same_words_are_joined_in_their_order():
    sends = [at(0, "send", 1, start, start + 1) for start in (0, 10)]
    receives = [at(1, "recv", 0, start, start + 3) for start in (1, 11)]
    messages = played(2, *receives, *sends).messages
    assert [(m.start, m.end) for m in messages] == [(0, 4), (10, 14)]


def two_collectives(comm):
    x = torch.zeros(6)
    with comm.collective("shift", x, root=0):
        ring(comm, 3)
    comm.barrier()
    group = comm.split(comm.rank % 2)
    with group.collective("shift", x):
        ring(group, 2)


def test_a_collective_is_an_event_and_its_messages_say_so():
    trace = traced(two_collectives, 4)
    whole = [(e.rank, e.operation, e.call) for e in trace.events if e.peer == -1]
    name = "shift #1 (float32 [6], root 0)"
    groups = [f"shift #1 in world/3:{color} (float32 [6])" for color in (0, 1)]
    for rank in range(4):
        calls = [call for r, _, call in whole if r == rank]
        assert calls == [name, "barrier #2", groups[rank % 2]]
    inside = [m for m in trace.messages if m.call == name]
    assert len(inside) == 4 * 3 and {m.bytes for m in inside} == {24}
    pairs = {(m.src, m.dst) for m in trace.messages if m.call in groups}
    assert pairs == {(0, 2), (2, 0), (1, 3), (3, 1)}  # numbers in the world
    for e in (e for e in trace.events if e.peer == -1):
        parts = [m for m in trace.events if m.rank == e.rank and m.call == e.call and m.peer >= 0]
        assert parts and all(e.start <= part.start <= part.end <= e.end for part in parts)
    assert trace.sent_bytes == [3 * 24 + 16] * 4  # a barrier's messages are empty


def meter_of(comm):
    flat(comm, 5)
    handle = comm.isend(torch.zeros(2, dtype=torch.bool), comm.rank)
    handle.wait(), handle.wait()  # one message, however often one waits for it
    comm.recv(torch.zeros(2, dtype=torch.bool), comm.rank)
    comm.exchange(torch.zeros(3).expand(4, 3), comm.rank, torch.zeros(12), comm.rank)
    comm.barrier()
    return comm.meter


def test_the_meter_is_exact():
    root, *others = run(meter_of, 3)
    ring_of_barrier = 2  # empty messages
    own = 2 + 48
    assert root == Meter(2 * 40 + own, 4 + ring_of_barrier, 2 * 40 + own, 4 + ring_of_barrier)
    assert others == [Meter(40 + own, 3 + ring_of_barrier, 40 + own, 3 + ring_of_barrier)] * 2


def test_a_trace_takes_in_several_runs():
    trace = Trace()
    run(ring, 2, 4, trace=trace)
    run(ring, 3, 4, trace=trace)
    assert trace.ranks == 3 and trace.sent_messages == [1 + 2, 1 + 2, 2]
    assert [e.start for e in trace.events] == sorted(e.start for e in trace.events)


def test_an_empty_trace_has_no_rounds():
    trace = Trace()
    assert (trace.steps, trace.messages, trace.sent_bytes) == (0, [], [])


def test_perfetto_finds_what_it_needs(tmp_path):
    trace, path = traced(two_collectives, 4), tmp_path / "trace.json"
    trace.save(path)
    events = json.loads(path.read_text())["traceEvents"]
    assert len(events) == len(trace.events)
    for event in events:
        assert event["ph"] == "X" and event["pid"] == 0 and event["tid"] in range(4)
        assert isinstance(event["name"], str) and isinstance(event["cat"], str)
        assert event["ts"] >= 0 and event["dur"] >= 0  # microseconds
    one, shown = next(pair for pair in zip(trace.events, events) if pair[0].operation == "send")
    assert shown["name"] == f"send to {one.peer}" and shown["tid"] == one.rank
    assert shown["ts"] == one.start * 1e6
    assert shown["dur"] == pytest.approx((one.end - one.start) * 1e6)
    assert shown["args"] == {"bytes": one.bytes, "tag": one.tag, "call": one.call}
    names = {event["name"] for event in events}
    assert {"shift", "barrier", "recv from 1"} <= names
