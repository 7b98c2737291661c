"""Whatever ends a run, in a real notebook kernel: it returns in time, and no process is left."""

import contextlib
import os
import pathlib
import signal
import textwrap
import time
from importlib.util import find_spec
from queue import Empty

import nbval.kernel
import psutil
import pytest
from jupyter_client.manager import start_new_kernel

import course
from course.worlds import hosts

ROOT = pathlib.Path(course.__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
WHY_NOT = hosts.available()
WORLDS = {
    "processes": "processes()",
    "hosts": pytest.param(
        "hosts(ranks)", marks=pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
    ),
    "mpi": pytest.param(
        "mpi()", marks=pytest.mark.skipif(not find_spec("mpi4py"), reason="there is no mpi4py")
    ),
}
SPARE_S = 30.0  # that a run may take beyond its time-out
RANKS = 3

PREPARE = """
    import os, pathlib, time
    import psutil, torch
    from course.worlds import hosts, mpi, processes
    from course.worlds import run as run_on

    def run(fn, ranks, *args, **options):
        return run_on(fn, ranks, *args, on=WORLD, **options)

    def sign_in(comm, folder):
        "Leave the numbers of this process, its leader, the fork server and the kernel."
        family = [psutil.Process(), *psutil.Process().parents()[:3]]
        note = pathlib.Path(folder, f"{comm.rank} writes")
        note.write_text(" ".join(str(member.pid) for member in family))
        note.rename(pathlib.Path(folder, str(comm.rank)))

    def stuck(comm, folder):
        sign_in(comm, folder)
        comm.recv(torch.zeros(1), (comm.rank + 1) % comm.size)

    def busy(comm, folder):
        sign_in(comm, folder)
        if comm.rank == 0:
            while True:
                torch.randn(50, 50) @ torch.randn(50, 50)
        if comm.rank == 1:
            time.sleep(1000)
        comm.barrier()
"""


def alive(pid) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition, seconds=30.0) -> float:
    """Seconds until something has come about."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + seconds, "this should have come about long ago"
        time.sleep(0.01)
    return time.monotonic() - start


class Family:
    """The processes of one run, once its ranks have signed in; `kept` outlive it in the kernel."""

    def __init__(self, folder):
        notes = [pathlib.Path(folder, str(rank)) for rank in range(RANKS)]
        wait_until(lambda: all(note.exists() for note in notes))
        pids = [[int(pid) for pid in note.read_text().split()] for note in notes]
        self.ranks = [own for own, *_ in pids]
        ((self.leader, self.fork_server, self.kernel),) = {tuple(above) for _, *above in pids}
        assert len({*self.ranks, self.leader, self.fork_server, self.kernel}) == RANKS + 3
        children = psutil.Process(self.kernel).children()
        self.managers = [child for child in children if child.name() == "mpirun"]
        self.managed = [p.pid for manager in self.managers for p in manager.children(True)]
        self.kept = [child.pid for child in children if child not in self.managers]
        assert self.fork_server in self.kept

    def left(self) -> list:
        managers = [manager.pid for manager in self.managers]
        family = *self.ranks, self.leader, *managers, *self.managed
        return [pid for pid in family if alive(pid)]

    def is_gone(self) -> bool:
        """Whether nothing is left, not even what the kernel keeps for the next run."""
        return not self.left() and not any(alive(pid) for pid in self.kept)


class Notebook:
    """A kernel and what its user does to it."""

    def __init__(self, folder, world):
        self.folder, self.prepare = folder, PREPARE.replace("WORLD", world)
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=ENVIRONMENT)
        self.execute(self.prepare)

    def start(self, code) -> str:
        code = textwrap.dedent(code).replace("FOLDER", repr(str(self.folder)))
        # What follows soon on a cell that fails would be dropped without stop_on_error=False.
        return self.client.execute(code, stop_on_error=False)

    def reply(self, cell, seconds=60.0) -> dict:
        """How a cell that was started has ended."""
        while True:
            message = self.client.get_shell_msg(timeout=seconds)
            if message["parent_header"].get("msg_id") == cell:
                return message["content"]

    def replies_until(self, last, seconds) -> dict:
        """How each cell has ended, to the `last` that was started; cells end in their order."""
        said = {}
        while last not in said:
            message = self.client.get_shell_msg(timeout=seconds)
            said[message["parent_header"].get("msg_id")] = message["content"]
        return said

    def execute(self, code) -> dict:
        reply = self.reply(self.start(code))
        assert reply["status"] == "ok", reply
        return reply

    def fail(self, code, timeout) -> str:
        """What a cell says that must fail, and soon: its ranks wait `timeout` seconds."""
        cell = self.start(code)
        family = Family(self.folder)
        start = time.monotonic()
        reply = self.reply(cell)
        assert time.monotonic() - start < timeout + SPARE_S
        self.expect_nothing_left(family)
        return f"{reply['ename']}: {reply['evalue']}"

    def expect_nothing_left(self, family):
        """The run is gone at once; what it was made with may stay for the next one."""
        wait_until(lambda: not family.left(), SPARE_S)
        here = psutil.Process(family.kernel).children(recursive=True)
        assert [p.pid for p in here if alive(p.pid)] == family.kept
        self.forget()

    def forget(self):
        """Clear away what the ranks have left."""
        for note in self.folder.iterdir():
            note.unlink()

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@contextlib.contextmanager
def a_notebook(folder, world):
    notebook = Notebook(folder, world)
    try:
        yield notebook
    finally:
        notebook.close()


@pytest.fixture(scope="module", params=WORLDS.values(), ids=WORLDS.keys())
def world(request):
    return request.param


@pytest.fixture(scope="module")
def shared(tmp_path_factory, world):
    """One kernel for all that it must survive."""
    with a_notebook(tmp_path_factory.mktemp("signs"), world) as notebook:
        yield notebook


@pytest.fixture
def own(tmp_path, world):
    """A kernel that may be harmed."""
    with a_notebook(tmp_path, world) as notebook:
        yield notebook


def test_a_rank_raises(shared):
    said = shared.fail("""
        def one_raises(comm):
            sign_in(comm, FOLDER)
            if comm.rank == 1:
                raise LookupError("nothing there")
            comm.recv(torch.zeros(1), 1)
        run(one_raises, 3)
    """, timeout=0)  # fmt: skip
    assert said.startswith("RankError: rank 1 failed: LookupError: nothing there")
    assert 'raise LookupError("nothing there")' in said  # the source line of the cell


def test_one_rank_waits_for_nothing(shared):
    said = shared.fail("""
        def one_waits(comm):
            sign_in(comm, FOLDER)
            if comm.rank == 1:
                comm.recv(torch.zeros(1), 2)
        run(one_waits, 3, timeout=30)
    """, timeout=0)  # fmt: skip
    assert said.startswith("RankError: rank 1 failed: PeerLost: rank 2 has returned")


def test_one_rank_is_stuck_and_the_others_wait_for_it(shared):
    said = shared.fail("""
        def one_sleeps(comm):
            sign_in(comm, FOLDER)
            if comm.rank == 1:
                time.sleep(1000)
            comm.barrier()
        run(one_sleeps, 3, timeout=1)
    """, timeout=1)  # fmt: skip
    assert said.startswith("RankError: rank ") and "waited 1 s in barrier #1" in said
    assert "rank 1 was still running, in one_sleeps" in said and "time.sleep(1000)" in said


def test_all_ranks_wait_for_one_another(shared):
    said = shared.fail("run(stuck, 3, FOLDER, timeout=1)", timeout=1)
    assert "CommTimeout: rank" in said and "waited 1 s in recv from rank" in said


def test_an_interrupt_says_where_each_rank_was(shared):
    """It showed where the launcher was: in selectors.py."""
    cell = shared.start("run(busy, 3, FOLDER, timeout=None)")
    family = Family(shared.folder)
    shared.manager.interrupt_kernel()
    reply = shared.reply(cell, SPARE_S)
    assert reply["ename"] == "KeyboardInterrupt"
    assert reply["evalue"].startswith(
        "the run was interrupted\n\nrank 0 was still running, in busy"
    )
    assert ": time.sleep(1000)\nrank 2 was still running, in busy, line " in reply["evalue"]
    assert reply["evalue"].endswith(": comm.barrier()")
    assert "selectors.py" not in "".join(reply["traceback"])
    shared.expect_nothing_left(family)


@pytest.mark.parametrize("pause_s", [0.0, 0.02, 0.3])
def test_two_interrupts(shared, pause_s):
    cell = shared.start("run(busy, 3, FOLDER, timeout=None)")
    family = Family(shared.folder)
    shared.manager.interrupt_kernel()
    time.sleep(pause_s)
    shared.manager.interrupt_kernel()
    said = shared.replies_until(shared.start("None"), SPARE_S)
    if cell in said:  # ipykernel drops the reply of a cell that ends as the second one comes
        assert said[cell]["ename"] == "KeyboardInterrupt"
    shared.expect_nothing_left(family)
    shared.execute("assert run(lambda comm: comm.rank, 3) == [0, 1, 2]")


def test_after_the_kernel_has_trained_a_net(shared):
    """A fork of a process whose OpenMP threads have worked would hang: the kernel is not forked."""
    shared.execute("""
        torch.set_num_threads(2)
        layers = torch.nn.Linear(300, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1)
        net = torch.nn.Sequential(*layers)
        for _ in range(3):
            net(torch.randn(2000, 300)).square().mean().backward()

        def train(comm):
            own = torch.nn.Linear(300, 300)
            own(torch.randn(2000, 300)).square().mean().backward()
            total = own.weight.grad.clone()
            comm.exchange(own.weight.grad, comm.rank ^ 1, total, comm.rank ^ 1)
            return net(torch.ones(1, 300)).item()
        here = net(torch.ones(1, 300)).item()  # by more threads, so in another order
        assert all(abs(there - here) < 1e-5 for there in run(train, 2))
    """)
    assert "CommTimeout" in shared.fail("run(stuck, 3, FOLDER, timeout=1)", timeout=1)


def test_a_rank_is_killed(shared):
    said = shared.fail("""
        import signal
        def one_dies(comm):
            sign_in(comm, FOLDER)
            if comm.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            comm.barrier()
        run(one_dies, 3)
    """, timeout=0)  # fmt: skip
    assert said.startswith("RankError: rank 2 failed: PeerLost: rank 2 was ended by SIGKILL")


def test_the_kernel_is_restarted_and_shut_down(own):
    for now in (False, True):
        own.start("run(busy, 3, FOLDER, timeout=None)")
        family = Family(own.folder)
        own.manager.restart_kernel(now=now)
        wait_until(family.is_gone, SPARE_S)
        own.client.wait_for_ready(timeout=60)
        own.forget()
        own.execute(own.prepare)
    own.execute("run(sign_in, 3, FOLDER)")
    family = Family(own.folder)
    own.expect_nothing_left(family)
    own.manager.shutdown_kernel()
    wait_until(family.is_gone, SPARE_S)


def test_the_kernel_is_killed(own):
    own.start("run(busy, 3, FOLDER, timeout=None)")
    family = Family(own.folder)
    os.kill(family.kernel, signal.SIGKILL)
    wait_until(family.is_gone, SPARE_S)


def test_the_kernel_is_killed_while_a_process_that_it_has_forked_lives(tmp_path):
    """That process holds the kernel's sockets: they did not close, and ranks stayed busy."""
    with a_notebook(tmp_path, "processes()") as own:
        own.execute("run(sign_in, 3, FOLDER)")
        own.forget()
        own.execute("""
            if (forked := os.fork()) == 0:
                time.sleep(1000)
            pathlib.Path(FOLDER, "forked").write_text(str(forked))
        """)
        forked = psutil.Process(int((tmp_path / "forked").read_text()))
        try:
            own.start("run(busy, 3, FOLDER, timeout=None)")
            family = Family(own.folder)
            family.kept.remove(forked.pid)
            os.kill(family.kernel, signal.SIGKILL)
            wait_until(family.is_gone, SPARE_S)
        finally:
            forked.kill()


def test_a_cell_of_nbval_runs_out_of_time(tmp_path, monkeypatch, world):
    """The calls that nbval's plugin makes, with a limit for this one cell alone."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with open(os.devnull, "w") as nowhere:  # nbval would leave it open
        monkeypatch.setattr(nbval.kernel, "open", lambda *_: nowhere, raising=False)
        kernel = nbval.kernel.RunningKernel("python3")
    kernel.await_reply(
        kernel.execute_cell_input(textwrap.dedent(PREPARE.replace("WORLD", world))), timeout=60
    )
    cell = kernel.execute_cell_input(f"run(stuck, 3, {str(tmp_path)!r}, timeout=None)")
    family = Family(tmp_path)
    with pytest.raises(Empty):
        kernel.await_reply(cell, timeout=0.1)
    kernel.interrupt()
    kernel.await_reply(cell, timeout=SPARE_S)
    wait_until(lambda: not family.left(), SPARE_S)
    kernel.stop()
    wait_until(family.is_gone, SPARE_S)
