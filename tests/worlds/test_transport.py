"""Every world keeps the contract of `course/comm/transport.py`: one test, with the same values and
the same sentences everywhere."""

from importlib.util import find_spec

import pytest
import torch

from course.comm import CommError, Trace
from course.comm.tensors import CODES
from course.comm.transport import NODE_MEMORY_BYTES, WORLD, Envelope, group_id
from course.worlds import RankError, hosts, mpi, processes, run, slurm
from tests.worlds.simulator.clusters import switched

RANKS = 3
WORLDS = {
    "one node": processes(),
    "a node each": processes(nodes=tuple(range(RANKS))),
    "hosts": hosts(RANKS),
    "mpi": mpi(),
    "slurm": slurm(nodes=2),
    "simulated": switched(RANKS),
}
MISSING = {"hosts": hosts.available(), "mpi": None if find_spec("mpi4py") else "needs mpi4py"}
SIZES = (0, 1, 1000, 40_000, 1_500_000)  # of float32: nothing, short, left in the stream, by memory


@pytest.fixture(params=WORLDS)
def world(request):
    if MISSING.get(request.param):
        pytest.skip(MISSING[request.param])
    if request.param == "slurm":
        request.getfixturevalue("at_box")
    return WORLDS[request.param]


def told(act, *args) -> str:
    """What a call says that must fail."""
    try:
        act(*args)
    except CommError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def envelope(x, tag=0, call=0) -> Envelope:
    return Envelope(WORLD, call, tag, CODES[x.dtype], x.nbytes)


def sent(transport, peer, x, tag=0, synchronous=True, call=0):
    transport.wait(transport.send_tensor(peer, envelope(x, tag, call), x, synchronous), "a send")


def received(transport, peers, x, tag=0, call=0):
    """Receive into `x`: the rank it came from."""
    request = transport.receive_tensor(tuple(peers), envelope(x, tag, call), x)
    transport.wait(request, "a receive")
    if request.unload:
        request.unload()
    assert request.done and request.error is None
    return request.source


# What goes on: each takes a communicator, for its ranks' meeting, and its transport


def messages(comm, transport):
    """Of every length, from the next rank and from any, synchronous or not, also to oneself."""
    right, left, found = (comm.rank + 1) % RANKS, (comm.rank - 1) % RANKS, []
    for size in SIZES:
        for synchronous in (True, False):
            x, out = torch.full((size,), float(comm.rank)), torch.empty(size)
            request = transport.send_tensor(right, envelope(x, 1), x, synchronous)
            found.append(received(transport, [left], out, 1) == left and bool((out == left).all()))
            transport.wait(request, "a send")
        sent(transport, comm.rank, x, 2)
        found.append(received(transport, range(RANKS), out, 2) == comm.rank)
    return all(found)


def a_place_in_steps(comm, transport):
    """What is not in one piece arrives by `unload`."""
    out = torch.zeros(3, 2)
    x = torch.arange(3.0) + comm.rank
    request = transport.send_tensor((comm.rank + 1) % RANKS, envelope(x), x, True)
    received(transport, [(comm.rank - 1) % RANKS], out[:, 1])
    transport.wait(request, "a send")
    return (out[:, 1] - (comm.rank - 1) % RANKS).tolist() + out[:, 0].tolist()


def in_the_order_of_tags(comm, transport):
    """Each receive takes the first message of its tag."""
    if comm.rank == 0:
        for tag, number in ((1, 1.0), (2, 2.0), (1, 3.0)):
            sent(transport, 1, torch.tensor([number]), tag, synchronous=False)
        return None
    out = torch.zeros(3)
    if comm.rank == 1:
        for place, tag in ((0, 2), (1, 1), (2, 1)):
            received(transport, [0], out[place : place + 1], tag)
    return out.tolist()


def a_misfit(comm, transport):
    """Both ends hear the same sentence, and nothing is written."""
    if comm.rank == 0:
        return told(sent, transport, 1, torch.ones(4), 3)
    out = torch.zeros(5, dtype=torch.float64)
    return told(received, transport, [0], out, 3) if comm.rank == 1 else out.sum().item()


def cancelled(comm, transport):
    """A receive that was cancelled takes no message of a later one."""
    early, late = torch.zeros(1), torch.zeros(1)
    if comm.rank == 1:
        transport.cancel(transport.receive_tensor((0,), envelope(early, 4), early))
    comm.barrier()
    if comm.rank == 0:
        sent(transport, 1, torch.ones(1), 4)
    if comm.rank == 1:
        received(transport, [0], late, 4)
    return early.item(), late.item()


def roll_calls(comm, transport):
    """What all say, in the order of members, whatever they say."""
    group, members = group_id(("for", "a test")), [2, 0, 1]
    said = []
    for _ in range(2):
        transport.last_call[group] += 1
        number, words = transport.last_call[group], f"rank {comm.rank}\nä"
        said.append(transport.roll_call(group, number, members, words, "a roll call"))
    return said, transport.last_call[group]


def in_a_roll_call(comm, transport):
    """Who waits for a message of ranks that are in a call answers with that, and is counted in."""
    x = torch.zeros(1)
    said = told(comm.recv, x, 2, 5) if comm.rank == 1 else told(comm.barrier)
    told(comm.barrier)
    return said.count("rank 1 is in recv from rank 2 (float32 [1], tag 5); rank")


def send_to_a_roll_call(comm, transport):
    said = told(comm.send, torch.zeros(1), 2, 6) if comm.rank == 1 else told(comm.barrier)
    told(comm.barrier)
    return said.count("rank 1 is in send to rank 2 (float32 [1], tag 6); rank")


def a_place_made_before_a_roll_call(comm, transport):
    """It takes its message while its rank waits in the call."""
    out = torch.zeros(1)
    place = comm.irecv(out, 1, 7) if comm.rank == 2 else None
    if comm.rank == 1:
        comm.send(out + 1, 2, 7)
    comm.barrier()
    return place.wait() if place else 1


def revoked(comm, transport):
    """Who waits within a call that another has left with a mismatch hears it; nobody else does."""
    x = torch.zeros(2 + (comm.rank == 2))

    def call():
        with comm.collective("relay"):
            if comm.rank:
                comm.recv(x, comm.rank - 1)
            if comm.rank < 2:
                comm.send(x, comm.rank + 1)
            if comm.rank == 0:
                comm.recv(x, 2)  # who does not come to sending it

    said = told(call)
    comm.barrier()
    return said if comm.rank != 1 else None


def background(comm, transport):
    """Calls run in their order beside the rank's own messages: tasks with a value or an error."""
    seen, thread = [], transport.background(WORLD)
    tasks = [thread.submit(lambda n=n: seen.append(n) or 10 * n) for n in range(3)]
    tasks.append(thread.submit(lambda: 1 / 0))
    out = torch.empty(1000)
    x = torch.full((1000,), float(comm.rank))
    comm.exchange(x, (comm.rank + 1) % RANKS, out, (comm.rank - 1) % RANKS)
    for task in tasks:
        thread.join(task)
    errors = [type(task.error).__name__ for task in tasks]
    own = thread.transport
    sent(own, own.rank, x, 8)
    return seen, [task.value for task in tasks], errors, received(own, [own.rank], out, 8)


def node_memory(comm, transport):
    """Of this rank's node, by ranks; a barrier parts what is written from what is read."""
    window = transport.node_memory(WORLD)
    if window is None:
        return True
    peers = [rank for rank in window.buffers if rank != comm.rank]
    window.buffers[comm.rank][:5] = comm.rank
    window.barrier(peers, "a barrier")
    right = all((window.buffers[rank][:5] == rank).all() for rank in window.buffers)
    window.barrier(peers, "a barrier")
    sizes = {buffer.numel() for buffer in window.buffers.values()}
    return bool(right) and sizes == {NODE_MEMORY_BYTES}


MISFIT = ("CommMismatch: rank 0 is in send to rank 1 (float32 [4], tag 3); "
          "rank 1 is in recv from rank 0 (float64 [5], tag 3)")  # fmt: skip
REVOKED = ("CommMismatch: rank 1 is in send to rank 2 (float32 [2], tag 0); "
           "rank 2 is in recv from rank 1 (float32 [3], tag 0)")  # fmt: skip
SAID = [f"rank {rank}\nä" for rank in (2, 0, 1)]
GOES_ON = {  # program, what each rank finds
    messages: [True] * RANKS,
    a_place_in_steps: [[0, 1, 2, 0, 0, 0]] * RANKS,
    in_the_order_of_tags: [None, [2, 1, 3], [0, 0, 0]],
    a_misfit: [MISFIT, MISFIT, 0],
    cancelled: [(0, 0), (0, 1), (0, 0)],
    roll_calls: [([SAID, SAID], 2)] * RANKS,
    in_a_roll_call: [1] * RANKS,
    send_to_a_roll_call: [1] * RANKS,
    a_place_made_before_a_roll_call: [1] * RANKS,
    revoked: [REVOKED, None, REVOKED],
    background: [([0, 1, 2], [0, 10, 20, None], [*3 * ["NoneType"], "ZeroDivisionError"], rank)
                 for rank in range(RANKS)],
    node_memory: [True] * RANKS,
}  # fmt: skip


def one_after_another(comm, programs):
    found = []
    for program in programs:
        found.append(program(comm, comm._transport))
        comm.barrier()
    return found


def test_a_world_keeps_its_contract(world):
    found = run(one_after_another, RANKS, list(GOES_ON), on=world)
    for program, answers in zip(GOES_ON, zip(*found)):
        assert list(answers) == GOES_ON[program], program.__name__


def who(comm):
    transport = comm._transport
    moved = transport.clock() >= 0
    comm.exchange(torch.ones(2), 1 - comm.rank, torch.ones(2), 1 - comm.rank)
    meter, events = vars(transport.meter), len(comm.events)
    return transport.rank, str(transport.device), transport.checked, moved, meter, events


def test_a_rank_knows_who_it_is_and_what_it_has_moved():
    """It keeps events only where they were asked for: a long training would fill its memory."""
    meter = {"sent_bytes": 8, "sent_messages": 1, "received_bytes": 8, "received_messages": 1}
    for on in (processes(device="cpu"), switched(2)):
        for checked, trace, events in ((True, None, 0), (False, None, 0), (False, Trace(), 2)):
            found = run(who, 2, on=on, checked=checked, trace=trace)
            expected = [(rank, "cpu", checked, True, meter, events) for rank in range(2)]
            assert found == expected


# What ends a run


def one_returns(comm):
    if comm.rank == 1:
        return None
    x, said = torch.zeros(1), []
    said.append(told(comm.recv, x, 1))
    said.append(told(comm.send, x, 1, 2))
    said.append(told(comm.barrier))
    said.append(told(comm.split, 0))
    return said


def test_who_has_returned_is_named_in_the_same_words_everywhere(world):
    said = run(one_returns, RANKS, on=world)
    places = ["recv from rank 1 (float32 [1], tag 0)", "send to rank 1 (float32 [1], tag 2)",
              "barrier #1", "split #2"]  # fmt: skip
    for rank in (0, 2):
        ended = f"PeerLost: rank 1 has returned from its function while rank {rank} was in "
        assert said[rank] == [ended + place for place in places]


def one_fails(comm):
    if comm.rank == 1:
        raise ArithmeticError("enough")
    comm.recv(torch.zeros(1), 1)


def test_who_has_failed_is_named_in_the_same_words_everywhere(world):
    with pytest.raises(RankError) as caught:
        run(one_fails, RANKS, on=world)
    told_by = caught.value.failures
    assert told_by[1] == "ArithmeticError: enough"
    for rank in set(told_by) - {1}:
        assert told_by[rank] == (f"PeerLost: rank 1 was lost while rank {rank} was in recv from "
                                 "rank 1 (float32 [1], tag 0)")  # fmt: skip


def all_wait(comm):
    comm.recv(torch.zeros(1), (comm.rank + 1) % comm.size)


def test_who_waits_in_vain_is_told(world):
    """By a time-out; by a deadlock, which is one, where somebody sees all ranks."""
    with pytest.raises(RankError) as caught:
        run(all_wait, RANKS, on=world, timeout=0.3)
    sentence = caught.value.failures[caught.value.rank]
    kind, _, words = sentence.partition(": ")
    assert kind in ("CommTimeout", "Deadlock")
    assert f"in recv from rank {(caught.value.rank + 1) % RANKS} (float32 [1], tag 0)" in words


def begun_and_left(comm, size):
    if comm.rank == 0:
        comm.isend(torch.ones(size), 1)
        return None
    out = torch.zeros(size)
    return comm.recv(out, 0) == 0 and bool(out.all())


@pytest.mark.parametrize("size", SIZES[1:])
def test_what_was_begun_is_finished_first(world, size):
    found = run(lambda comm: comm.rank < 2 and begun_and_left(comm, size), RANKS, on=world,
                checked=False)  # fmt: skip
    assert found[1] is True


def sums(comm):
    x = torch.ones(3)
    comm.native.all_reduce(x)
    return x.tolist()


def test_native_is_the_backends_or_refused(world):
    if world is WORLDS["simulated"]:
        with pytest.raises(RankError, match="an imagined cluster has no backend of its own"):
            run(sums, RANKS, on=world)
    else:
        assert run(sums, RANKS, on=world) == [[RANKS] * 3] * RANKS
