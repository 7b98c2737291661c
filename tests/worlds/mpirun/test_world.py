"""Ranks in touch by MPI: everything is as with processes, and nothing is left of a run."""

import ast
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import course
from course.collectives import all_reduce, broadcast
from course.comm import ANY, Trace
from course.worlds import RankError, mpi, run
from course.worlds.mpirun import world
from course.worlds.mpirun.process_manager import ProcessManager
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
from tests.worlds.sockets.test_torch_backend import told

pytest.importorskip("mpi4py")
ROOT = Path(course.__file__).parents[1]


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


# What goes wrong


def fail_at(comm, how):
    if comm.rank == 2:
        {
            "raise": lambda: [][0],  # noqa: PLE0643
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


def test_without_mpi4py_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    needs = "on=mpi.. needs mpi4py and MPICH: install both with pip install mpi4py mpich"
    with pytest.raises(ValueError, match=needs):
        run(all_wait, 2, on=mpi())
    assert re.match(needs, mpi.available())


def test_whether_an_mpi_starts_is_tried(monkeypatch):
    assert mpi.available() is None
    monkeypatch.setenv("MPI4PY_LIBMPI", "/there/is/no/libmpi.so")
    assert re.match("rank 0 failed: RuntimeError: cannot load MPI library", mpi.available())


def test_the_package_does_without_mpi4py():
    code = "import sys; sys.modules['mpi4py'] = None; import course.worlds; course.worlds.mpi()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("device", ["gpu", 3, "mpirun"])
def test_devices_that_do_not_exist(device):
    with pytest.raises(ValueError, match=f'device must be "cpu", "cuda" or None, not {device!r}'):
        run(all_wait, 2, on=mpi(device))


def test_more_ranks_than_cores_are_asked_for_by_name():
    with pytest.raises(ValueError, match="would mostly wait for one another"):
        run(all_wait, 1000, on=mpi())


def alone(comm):
    from mpi4py import MPI  # started without a manager

    from course.worlds.mpirun.world import join

    return MPI.COMM_WORLD.size, told(lambda: join(comm.rank, [99], ranks=2, start_s=30))


def test_an_mpi_that_starts_otherwise_than_mpich():
    for rank, (size, said) in enumerate(run(alone, 2)):
        assert size == 1
        assert said == (
            f"ValueError: rank {rank} is one of 1, not of 2: on=mpi() starts MPICH's ranks, but "
            "mpi4py uses MPICH (start it by its mpirun)"
        )


def test_an_mpi_that_does_not_start_is_given_up(monkeypatch, capfd):
    monkeypatch.setattr(world, "START_S", 0.5)
    monkeypatch.setattr(ProcessManager, "answers", lambda *_: [])
    with pytest.raises(RankError, match="rank . exited with status 1 before its function"):
        run(all_wait, 2, on=mpi())
    assert re.search(r"Timeout .0:00:00.500000.!(.|\n)*in join", capfd.readouterr().err)


OUTER_JOB = {
    "PMI_RANK": "3", "PMI_SIZE": "8", "PMI_FD": "77", "PMI_PORT": "host:1", "PMI_ID": "3",
    "PMIX_RANK": "3", "PMIX_NAMESPACE": "job", "MPIR_CVAR_PMI_VERSION": "x",
    "SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "3", "SLURM_MPI_TYPE": "pmi2",
    "HYDRA_LAUNCHER": "slurm", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0",
    "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0",
}  # fmt: skip


def test_inside_a_job_of_slurm_or_another_mpi_the_ranks_are_ours(monkeypatch):
    for name, value in OUTER_JOB.items():
        monkeypatch.setenv(name, value)
    assert run(sees, 3, on=mpi()) == [(rank, 3, []) for rank in range(3)]


def test_inside_mpirun():
    code = "from course.worlds import *; print(run(lambda comm: comm.size, 3, on=mpi()))"
    done = mpirun(2, ROOT, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[3, 3, 3]\n" * 2, "")


# On a shared node


def listening() -> list:
    """The sockets on which this process waits for connections, as the kernel lists them."""
    links = (Path("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    own = {os.readlink(link) for link in links if link.is_symlink()}
    found = []
    for kind, state, inode in (("tcp", 3, 9), ("tcp6", 3, 9), ("udp", 3, 9), ("unix", 3, 6)):
        for line in Path("/proc/net", kind).read_text().splitlines()[1:]:
            words = line.split()
            bound = words[state] in ("0A", "07") or words[state] == "00010000"
            if bound and f"socket:[{words[inode]}]" in own:
                found.append(line)
    return found


def sees(comm):
    comm.native.all_reduce(torch.ones(3))
    return comm.rank, comm.size, listening()


def test_what_listens_is_found():
    before = listening()
    with socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0course-test")
        unix.listen()
        assert len(listening()) == len(before) + 2


def test_no_rank_has_an_open_port_and_neither_has_the_launcher():
    before = listening()
    assert run(sees, 3, on=mpi()) == [(rank, 3, []) for rank in range(3)]
    assert listening() == before


def spy(ranks, told):
    """As another user: what can be read of the run's processes, once they have signed in."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    found = []
    for pid in ranks:
        for name in ("environ", "maps", "mem", "cmdline", "fd", "cwd"):
            path = Path(f"/proc/{pid}/{name}")
            look = {"fd": os.listdir, "cwd": os.readlink}.get(name, Path.read_bytes)
            with contextlib.suppress(PermissionError):
                found.append((name, look(path)))
    os.write(told, repr(found).encode())


NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as another user")
def test_another_user_reads_nothing_of_a_run(monkeypatch):
    def family(comm):
        looked, tell = os.pipe()
        if comm.rank == 0:
            pids = [os.getpid(), os.getppid(), launcher]
            if os.fork() == 0:
                spy(pids, tell)
                os._exit(0)
        os.close(tell)
        with open(looked) as answer:
            return answer.read()

    launcher = os.getpid()
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    found = ast.literal_eval(run(family, 2, on=mpi())[0])
    assert [name for name, _ in found] == ["cmdline"] * 3  # which all processes show
    assert not any(b"hunter2" in text for _, text in found)


ENDING = """
    import os, signal, sys, torch
    from course.worlds import mpi, run

    def end(comm, how, launcher):
        comm.native.all_reduce(torch.ones(100))
        comm.barrier()
        if comm.rank == 1 and how != "well":
            {
                "failed": lambda: [][0],
                "a rank killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
                "interrupted": lambda: os.kill(launcher, signal.SIGINT),
                "the launcher killed": lambda: os.kill(launcher, signal.SIGKILL),
            }[how]()
        if how != "well":
            comm.recv(torch.ones(1), 0 if comm.rank else 1)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background of a shell
    run(end, 3, HOW, os.getpid(), on=mpi())
"""
IN_PRIVATE = 'mount -t tmpfs none /dev/shm && "$@"; code=$?; ls -A /dev/shm "$TMPDIR"; exit $code'


@pytest.mark.parametrize(("how", "status"), {
    "well": 0, "failed": 1, "a rank killed": 1, "interrupted": 130, "the launcher killed": 137,
}.items())  # fmt: skip
def test_no_file_is_left_however_a_run_ends(how, status, tmp_path):
    """/dev/shm is another one there, so that nobody else's files are seen; loopback is down."""
    private = ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c", IN_PRIVATE, "sh"]
    if subprocess.run([*private, "true"], capture_output=True).returncode:
        pytest.skip("there is no mount namespace for this user")
    code = textwrap.dedent(ENDING).replace("HOW", repr(how))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run([*private, sys.executable, "-c", code], env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode in (status, -signal.SIGINT), done.stderr
    assert done.stdout == f"/dev/shm:\n\n{tmp_path}:\n", done.stderr


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


def mpirun(ranks, folder, *arguments):
    """What Python does with these arguments that MPI's own program starts on so many ranks."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if (program := shutil.which("mpirun", path=places)) is None:
        pytest.skip("there is no mpirun")
    command = [program, "-n", str(ranks), sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def by_hand(folder, function):
    folder.joinpath("program.py").write_text(textwrap.dedent(PROGRAM))
    return mpirun(4, folder, "-m", "mpi4py", "-m", "course.worlds.mpirun", f"program:{function}")


def test_a_function_runs_under_mpirun(tmp_path):
    done = by_hand(tmp_path, "add")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4" for rank in range(4)]


def test_an_exception_on_one_rank_ends_the_job_and_names_it(tmp_path):
    done = by_hand(tmp_path, "fail")
    assert done.returncode != 0
    assert re.search("rank 2 failed:\nTraceback(.|\n)*LookupError: nothing there", done.stderr)


def waits_for_ever(comm, folder, launcher):
    Path(folder, str(os.getpid())).touch()
    comm.barrier()
    if comm.rank == 1:
        os.kill(launcher, signal.SIGUSR2)
    comm.recv(torch.zeros(1), 1 - comm.rank)


@pytest.fixture
def interrupted_by_a_rank():
    """SIGUSR2 interrupts this process: SIGINT is ignored in the background of a shell."""
    before = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("interrupted_by_a_rank")
def test_an_interrupt_while_a_run_is_stopped_leaves_no_rank(tmp_path, monkeypatch):
    def interrupted(process):
        raise KeyboardInterrupt("a second one")

    monkeypatch.setattr(world, "unlink_shared_memory", interrupted)
    with pytest.raises(KeyboardInterrupt, match="a second one") as held:  # holds all that was there
        run(waits_for_ever, 2, tmp_path, os.getpid(), on=mpi(), timeout=None, limit=100)
    ranks = [int(file.name) for file in tmp_path.iterdir()]
    assert len(ranks) == 2 and held.tb
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
