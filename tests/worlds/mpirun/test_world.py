"""Ranks in touch by MPI: everything is as with processes, and nothing is left of a run."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import torch

import course
from course.collectives import all_reduce, broadcast
from course.comm import ANY, CommError, Trace
from course.worlds import RankError, mpi, run
from tests.collectives.drills import BASIC, REDUCING
from tests.collectives.guarded import column, whole
from tests.collectives.test_basic import (
    LARGE,
    LONG,
    all_drills,
    every_dtype,
    every_dtype_and_op,
    every_shape_and_layout,
)
from tests.worlds.sockets.test_torch_backend import every_call, ramp, told
from tests.worlds.test_stop import SPARE_S, Family, a_notebook, alive, wait_until

pytest.importorskip("mpi4py")
ROOT = Path(course.__file__).parents[1]
MPIRUN = mpi()._manager()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_ranks_hold_what_one_process_works_out(ranks):
    assert run(all_drills, ranks, every_shape_and_layout(), on=mpi()) == [[]] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_dtype_and_every_op(ranks):
    assert run(all_drills, ranks, every_dtype(), BASIC, on=mpi()) == [[]] * ranks
    assert run(all_drills, ranks, every_dtype_and_op(), REDUCING, on=mpi()) == [[]] * ranks


@pytest.mark.parametrize("checked", [True, False])
def test_large_messages(checked):
    cases = [(torch.float64, whole, LARGE, "sum"), (torch.float32, column, LONG, "max")]
    assert run(all_drills, 3, cases, on=mpi(), checked=checked) == [[]] * 3


def pass_round(comm, elements, turns):
    """Strided tensors round the ring, larger than anything MPI would buffer; each to ANY, too."""
    right, left, found = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, []
    for turn in range(turns):
        given = torch.arange(2.0 * elements)[::2] + comm.rank + 10 * turn
        got = torch.zeros(elements, 2)[:, 0]
        found.append(comm.exchange(given, right, got, ANY if turn % 2 else left, tag=turn) == left)
        found.append(torch.equal(got, torch.arange(2.0 * elements)[::2] + left + 10 * turn))
    return found, comm.meter.sent_bytes, comm.node


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("elements", [0, 7, 1_500_007])
def test_the_same_tensors_five_times_with_other_values(ranks, elements):
    expected = [True] * 10, 5 * 4 * elements, 0
    assert run(pass_round, ranks, elements, 5, on=mpi()) == [expected] * ranks


def late_receive(comm):
    """A message begins to come for nobody, since one is awaited behind it, and then finds its
    receive."""
    long = torch.arange(1_000_000.0)
    if comm.rank == 0:
        first = comm.isend(long, 1, tag=1)
        comm.isend(long + 1, 1, tag=2).wait()
        first.wait()
        return None
    second, first = torch.zeros(1_000_000), torch.zeros(1_000_000)
    comm.recv(second, 0, tag=2)
    comm.recv(first, 0, tag=1)
    return torch.equal(first, long) and torch.equal(second, long + 1)


def test_a_message_that_was_set_aside():
    assert run(late_receive, 2, on=mpi(), checked=False)[1]


def another_place(comm):
    """A message is given another place while it is on its way."""
    line = type(comm._transport.streams[1 - comm.rank].socket)(
        comm._transport.world.Dup(), 1 - comm.rank
    )
    first, second = bytearray(5), bytearray(5)
    if comm.rank == 1:
        with pytest.raises(BlockingIOError):
            line.recv_into(memoryview(first))
    comm.barrier()
    if comm.rank == 0:
        return line.sendmsg([memoryview(b"hello")])
    wait_until(lambda: line.ready() & 1)
    return line.recv_into(memoryview(second)), bytes(second)


def test_a_message_that_finds_its_receive_while_it_comes():
    assert run(another_place, 2, on=mpi()) == [5, (5, b"hello")]


def sums_beside(comm):
    xs = [torch.full((100_003,), comm.rank + turn) for turn in range(5)]
    begun = [comm.submit(all_reduce, x) for x in xs]
    mine = torch.full((7,), comm.rank)
    all_reduce(comm, mine)
    for handle in begun:
        handle.wait()
    total = comm.size * (comm.size - 1) // 2
    right = [bool((x == total + turn * comm.size).all()) for turn, x in enumerate(xs)]
    return [*right, bool((mine == total).all())]


def test_calls_beside_the_ranks_own_work():
    assert run(sums_beside, 4, on=mpi()) == [[True] * 6] * 4


# MPI's own collectives


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_mpis_own_collectives_are_what_they_are_called(ranks):
    assert run(every_call, ranks, on=mpi()) == [[]] * ranks


def natively(comm):
    said = [
        told(comm.native.all_reduce, torch.ones(2, dtype=torch.bfloat16)),
        told(comm.native.all_reduce, torch.ones(2, dtype=torch.bool)),
        told(comm.native.all_reduce, torch.ones(2 + comm.rank)),
        told(comm.native.broadcast, torch.ones(2), 5),
    ]
    half = torch.full((3,), comm.rank, dtype=torch.bfloat16)
    comm.native.broadcast(half, root=2)
    group = comm.split(comm.rank % 2, key=-comm.rank)  # the last first
    x = ramp(comm.rank, 4)
    group.native.all_reduce(x)
    group.native.broadcast(first := torch.tensor([comm.rank]))
    return said, half.tolist(), x.tolist(), first.item()


def test_mpis_own_collectives_in_groups_and_what_they_refuse():
    results = run(natively, 4, on=mpi())
    said = results[0][0]
    assert said[0] == "ValueError: rank 0: MPI has no numbers of torch.bfloat16"
    assert said[1].startswith("ValueError: rank 0: MPI cannot do native.all_reduce #")
    assert said[2].startswith("CommMismatch: rank 0 is in native.all_reduce #")
    assert said[3] == "ValueError: rank 0: no root 5 among 4 ranks"
    even, odd = [20, 22, 24, 26], [40, 42, 44, 46]
    assert [(x, first) for _, _, x, first in results] == [(even, 2), (odd, 3)] * 2
    assert {tuple(half) for _, half, _, _ in results} == {(2.0, 2.0, 2.0)}


def test_a_rank_that_does_not_join_is_waited_for_no_longer_than_the_time_out():
    def one_alone(comm):
        native = comm.native
        return told(native.barrier) if comm.rank == 0 else "elsewhere"

    said = run(one_alone, 2, on=mpi(), checked=False, timeout=0.5)
    assert said == ["CommTimeout: rank 0 waited 0.5 s in native.barrier #2", "elsewhere"]


# What goes wrong


def fail_at(comm, how):
    if comm.rank == 2:
        {
            "raise": lambda: [][0],
            "exit": lambda: sys.exit("enough"),
            "leave": lambda: os._exit(3),
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        }[how]()
    comm.barrier()


@pytest.mark.parametrize("how, sentence", {
    "raise": "rank 2 failed: IndexError: list index out of range",
    "exit": "rank 2 failed: SystemExit: enough",
    "leave": "rank 2 failed: PeerLost: rank 2 exited with status 3 before its function had",
    "kill": "rank 2 failed: PeerLost: rank 2 was ended by SIGKILL before its function had",
}.items())  # fmt: skip
def test_the_rank_that_failed_is_named(how, sentence):
    with pytest.raises(RankError) as caught:
        run(fail_at, 3, how, on=mpi())
    assert str(caught.value).startswith(sentence) and caught.value.rank == 2
    if how == "raise":
        assert '"raise": lambda: [][0]' in str(caught.value)
        assert "rank 0: PeerLost: rank 2 was lost while rank 0 was in barrier" in str(caught.value)


def one_returns(comm):
    if comm.rank == 0:
        comm.recv(torch.zeros(1), 1)


def all_wait(comm):
    comm.recv(torch.zeros(1), (comm.rank + 1) % comm.size)


def two_lengths(comm):
    if comm.rank == 0:
        comm.send(torch.zeros(3), 1)
    else:
        comm.recv(torch.zeros(4), 0)


def two_dtypes(comm):
    comm.exchange(torch.zeros(2, dtype=(torch.int32, torch.float32)[comm.rank]), 1 - comm.rank,
                  torch.zeros(2), 1 - comm.rank)  # fmt: skip


def two_tags(comm):
    if comm.rank == 0:
        comm.send(torch.zeros(3), 1, tag=1)
    else:
        comm.recv(torch.zeros(3), 0, tag=2)


def two_calls(comm):
    x = torch.zeros(3)
    all_reduce(comm, x) if comm.rank else broadcast(comm, x)


def two_roots(comm):
    broadcast(comm, torch.zeros(3), root=comm.rank)


@pytest.mark.parametrize("fn", [
    one_returns, two_lengths, two_dtypes, two_calls, two_roots
])  # fmt: skip
def test_what_is_said_is_what_processes_say(fn):
    def failures(world):
        with pytest.raises(RankError) as caught:
            run(fn, 2, on=world, timeout=0.5)
        return caught.value.failures, type(caught.value.exception)

    assert failures(mpi()) == failures(None)


@pytest.mark.parametrize("fn, doing", {all_wait: "recv", two_tags: "send to|recv from"}.items())
def test_nobody_waits_longer_than_the_time_out(fn, doing):
    with pytest.raises(RankError, match=f"CommTimeout: rank . waited 0.5 s in {doing}"):
        run(fn, 2, on=mpi(), timeout=0.5)


def test_ranks_print_as_processes_do(capfd):
    def speak(comm):
        print(f"I am {comm.rank}")

    run(speak, 3, on=mpi())
    assert capfd.readouterr() == ("[0] I am 0\n[1] I am 1\n[2] I am 2\n", "")


def test_messages_are_traced():
    run(pass_round, 2, 7, 1, on=mpi(), trace=(trace := Trace()))
    assert len([e for e in trace.events if e.operation == "send"]) == 2


# The start


def test_without_mpi4py_or_mpirun_it_is_said_what_to_install(monkeypatch):
    with pytest.raises(ValueError, match="on=mpi.. finds no program my-mpirun: install both with"):
        run(all_wait, 2, on=mpi("my-mpirun"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match="on=mpi.. needs mpi4py and an MPI: install both with pip"):
        run(all_wait, 2, on=mpi())


def test_the_package_does_without_mpi4py():
    code = "import sys; sys.modules['mpi4py'] = None; import course.worlds; course.worlds.mpi()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def program(path, text) -> str:
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return str(path)


def test_what_a_manager_says_that_starts_nothing(tmp_path):
    manager = program(tmp_path / "mpirun", "echo there is no such host\nexit 1")
    with pytest.raises(CommError, match="has started no ranks, but says: there is no such host"):
        run(all_wait, 2, on=mpi(manager))


def test_a_manager_of_another_mpi_than_mpi4pys(tmp_path):
    manager = program(tmp_path / "mpirun", 'shift 2\n"$@" &\n"$@" &\nwait\n')
    with pytest.raises(RankError, match="is one of 1, not of 2: mpi4py uses MPICH, whose own"):
        run(all_wait, 2, on=mpi(manager))


# From a shell

PROGRAM = """
    import sys, torch
    from course.collectives import all_reduce

    def add(comm):
        all_reduce(comm, x := torch.full((100_000,), comm.rank))
        assert (x == 6).all()
        sys.stdout.write(f"rank {comm.rank} of {comm.size}\\n")

    def fail(comm):
        if comm.rank == 2:
            raise LookupError("nothing there")
        comm.barrier()
"""


def by_hand(folder, function):
    folder.joinpath("program.py").write_text(textwrap.dedent(PROGRAM))
    command = [
        MPIRUN,
        "-n",
        "4",
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "course.worlds.mpirun",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, f"program:{function}"], cwd=folder, env=environment,
                          capture_output=True, text=True)  # fmt: skip


def test_a_function_runs_under_mpirun(tmp_path):
    done = by_hand(tmp_path, "add")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4" for rank in range(4)]


def test_an_exception_on_one_rank_ends_the_job_and_names_it(tmp_path):
    done = by_hand(tmp_path, "fail")
    assert done.returncode != 0
    assert re.search("rank 2 failed:\nTraceback(.|\n)*LookupError: nothing there", done.stderr)


# The end, beside what tests/worlds/test_stop.py does to every world


@pytest.fixture
def notebook(tmp_path):
    with a_notebook(tmp_path, "mpi()") as notebook:
        notebook.execute("run(lambda comm: None, 3)")
        yield notebook


def descendants(notebook) -> dict:
    """Names of all processes of a kernel, by number."""
    found = psutil.Process(notebook.manager.provisioner.pid).children(recursive=True)
    return {process.pid: process.name() for process in found}


def test_a_kernel_that_is_killed_while_ranks_start_leaves_nothing(notebook):
    notebook.start("run(busy, 3, FOLDER, timeout=None)")
    wait_until(lambda: "mpirun" in descendants(notebook).values())
    pids = list(descendants(notebook))
    os.kill(notebook.manager.provisioner.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)), SPARE_S)


def test_a_manager_that_is_killed_hinders_nobody(notebook):
    cell = notebook.start("run(busy, 3, FOLDER, timeout=None)")
    family, named = Family(notebook.folder), descendants(notebook)
    assert {"mpirun", "hydra_pmi_proxy"} <= set(named.values())
    assert named.keys() == {*family.left(), family.fork_server}
    (manager,) = [pid for pid, name in named.items() if name == "mpirun"]
    os.kill(manager, signal.SIGKILL)
    notebook.manager.interrupt_kernel()
    assert notebook.reply(cell, SPARE_S)["ename"] == "KeyboardInterrupt"
    wait_until(lambda: not family.left(), 1.0)
