import functools
import math
import os
import random
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import psutil
import pytest
import torch

import course
from course.comm import CommError, PeerLost
from course.worlds import RankError, RunTimeout, processes, run
from course.worlds import cores as cores_module
from course.worlds.cores import cores
from course.worlds.local import workers as workers_module
from course.worlds.supervise import GRACE_S

ROOT = os.path.dirname(os.path.dirname(course.__file__))


def whoami(comm, *args, **kwargs):
    return comm.rank, comm.size, args, kwargs


def test_values_come_back_by_rank():
    for ranks in (1, 2, 3, 4):
        said = run(whoami, ranks, "a", 2, key=[3])
        assert said == [(rank, ranks, ("a", 2), {"key": [3]}) for rank in range(ranks)]


# What may run


def outer():
    text = "closed over"

    def inner(comm, n):
        return text if n == 0 else inner(comm, n - 1)

    return inner


class Adder:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, comm):
        return comm.rank + self.amount

    def method(self, comm):
        return self(comm)


FUNCTIONS = {
    "closure": (lambda: functools.partial(outer(), n=2), ["closed over"] * 2),
    "lambda": (lambda: lambda comm: comm.rank * 10, [0, 10]),
    "partial": (lambda: functools.partial(lambda comm, a, b: a - b, b=1, a=4), [3, 3]),
    "object": (lambda: Adder(5), [5, 6]),
    "method": (lambda: Adder(6).method, [6, 7]),
    "built in": (
        lambda: repr,
        ["<rank 0 of 2 in world, node 0>", "<rank 1 of 2 in world, node 0>"],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_anything_that_can_be_called_runs(name):
    make, expected = FUNCTIONS[name]
    assert run(make(), 2) == expected


def notebook(source):
    """The variables of a notebook whose cells are `source`: its functions are in `__main__`."""
    variables = {"__name__": "__main__"}
    exec(textwrap.dedent(source), variables)
    return variables


def test_a_function_takes_along_what_it_uses_as_it_is_now():
    cells = notebook("""
        class Scale:
            factor = 3

        rate = 0.5
        def helper(x): return x * Scale.factor
        def step(comm): return helper(comm.rank) + rate
    """)
    assert run(cells["step"], 2) == [0.5, 3.5]
    cells["rate"] = 0.25
    cells["Scale"].factor = 4
    assert run(cells["step"], 2) == [0.25, 4.25]


def change_what_came_along(comm, values):
    values.append(comm.rank)
    return values


def test_what_came_along_is_a_copy_of_each_rank():
    values = [7]
    assert run(change_what_came_along, 2, values) == [[7, 0], [7, 1]]
    assert values == [7]


SCRIPT = """
    import pathlib, sys, torch
    with open("imported", "a") as file:
        file.write("once ")

    import course.worlds

    class Point:
        def __init__(self, x): self.x = x

    offset = 40

    def work(comm):
        total = torch.tensor([float(comm.rank)])
        comm.native.all_reduce(total)
        main = sys.modules["__main__"]
        return Point(total.item() + offset), pathlib.Path(main.__file__).name

    if sys.argv[1:] == ["fail"]:
        course.worlds.run(lambda comm: comm.rank or missing, 2)
    points, mains = zip(*course.worlds.run(work, 2))
    print([point.x for point in points], set(mains), all(type(p) is Point for p in points))
"""


def script(tmp_path, *arguments):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-W", "error", str(path), *arguments]
    environment = os.environ | {"PYTHONPATH": ROOT}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)


def test_a_script_needs_no_guard_and_is_never_imported(tmp_path):
    done = script(tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "[41.0, 41.0] {'fork_server.py'} True\n"
    assert (tmp_path / "imported").read_text() == "once "


def test_a_script_whose_rank_failed_fails(tmp_path):
    done = script(tmp_path, "fail")
    assert done.returncode == 1
    assert "rank 0 failed: NameError: name 'missing' is not defined" in done.stderr
    assert "course.worlds.run(lambda comm: comm.rank or missing, 2)" in done.stderr


# Where it runs


def surroundings(comm):
    import marked

    return os.getcwd(), marked.value, os.environ.get("COURSE_MARK"), "COURSE_GONE" in os.environ


def test_directory_path_and_environment_are_those_of_this_call(tmp_path, monkeypatch):
    for turn in ("first", "second"):
        here = tmp_path / turn
        here.mkdir()
        (here / "marked.py").write_text(f"value = {turn!r}")
        with monkeypatch.context() as now:
            now.chdir(here)
            now.syspath_prepend("" if turn == "second" else str(here))
            now.setenv("COURSE_MARK", turn)
            if turn == "first":
                now.setenv("COURSE_GONE", "soon")
            said = run(surroundings, 2)
        assert said == [(str(here), turn, turn, turn == "first")] * 2


def inside(comm):
    main, arguments = sys.modules["__main__"].__file__, sys.argv
    standard_input = sys.stdin.read()
    return os.path.basename(main), len(arguments), standard_input, torch.get_num_threads()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_rank_is_a_process_of_its_own_with_its_share_of_the_cores(monkeypatch, ranks):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    expected = ("fork_server.py", 2, "", max(1, cores() // ranks))
    assert run(inside, ranks) == [expected] * ranks
    assert len({os.getpid(), *run(lambda comm: os.getpid(), ranks)}) == ranks + 1


def draws(comm):
    numbers = [torch.rand(()).item(), random.random(), numpy.random.rand()]
    return numbers


def test_random_numbers_differ_between_ranks_and_not_between_runs():
    first, second = run(draws, 3), run(draws, 3)
    assert first == second
    for numbers in zip(*first):
        assert len(set(numbers)) == 3


def poses(comm):
    return comm.node, comm.nodes


def test_ranks_pose_as_being_on_several_nodes():
    assert run(poses, 4, on=processes(nodes=[0, 0, 1, 1])) == [
        (node, (0, 0, 1, 1)) for node in (0, 0, 1, 1)
    ]


def test_there_may_be_more_ranks_than_cores(monkeypatch):
    monkeypatch.setattr(cores_module, "cores", lambda: 1)
    assert run(whoami, 4)[3][:2] == (3, 4)
    with pytest.raises(
        ValueError,
        match=r"^5 ranks on 1 cores would mostly wait for one another: at most 4 run here, unless "
        r"you pass oversubscribe=True to processes\(\)$",
    ):
        run(whoami, 5)
    assert run(whoami, 6, on=processes(oversubscribe=True))[5][:2] == (5, 6)
    monkeypatch.setattr(cores_module, "cores", lambda: 3)
    assert run(whoami, 6)[5][:2] == (5, 6)


# What comes back


def large_result(comm):
    return torch.full([12_500_000], float(comm.rank)), "x" * 100


def test_a_result_may_be_large():
    for rank, (x, text) in enumerate(run(large_result, 2)):
        assert x.shape == (12_500_000,) and x.eq(rank).all() and text == "x" * 100


def test_an_argument_may_be_large():
    x = torch.arange(6_250_000)
    assert run(lambda comm, x: x.sum().item(), 2, x) == [x.sum().item()] * 2


def test_runs_may_be_under_way_at_once():
    values = {}

    def start(number):
        values[number] = run(lambda comm: (comm.barrier(), number, comm.rank)[1:], 2)

    threads = [threading.Thread(target=start, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == {number: [(number, 0), (number, 1)] for number in range(4)}


# What is left


def offspring(comm, fail):
    child = subprocess.Popen(["sleep", "1000"])
    if fail and comm.rank == 0:
        raise RuntimeError("on purpose")
    return child.pid


def running(pid) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids) -> bool:
    """Whether all of these processes end within a while; we cannot wait for them as a parent."""
    end = time.monotonic() + 10
    while any(running(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(running(pid) for pid in pids)


def ranks_alive():
    """All processes that were started for runs, without the fork server, which stays."""
    own, all_ = psutil.Process().children(), psutil.Process().children(recursive=True)
    return [child.pid for child in all_ if child not in own and running(child.pid)]


def test_what_ranks_have_started_ends_with_their_run():
    pids = run(offspring, 2, False)
    assert gone(pids) and gone(ranks_alive())


def test_nothing_is_left_of_a_run(tmp_path):
    run(whoami, 2)
    files, threads = psutil.Process().num_fds(), threading.active_count()
    for _ in range(3):
        run(whoami, 3)
        with pytest.raises(RankError):
            run(offspring, 2, True)
        with pytest.raises(ValueError, match="cannot be sent"):
            run(whoami, 2, threading.Lock())
    assert psutil.Process().num_fds() == files
    assert threading.active_count() == threads
    assert gone(ranks_alive())


def flee(comm, how):
    """Start a process in a session of its own, and say which."""
    if how == "popen":
        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
    if how == "shell":
        shell = "setsid sleep 1000 > /dev/null 2>&1 & echo $!"
        return int(subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout)
    said, say = os.pipe()
    if (child := os.fork()) == 0:  # and its child loses its parent, in a session of its own
        os.setsid()
        if os.fork() == 0:
            os.write(say, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(said, 20))


@pytest.mark.parametrize("how", ["popen", "shell", "fork"])
def test_what_has_a_session_of_its_own_ends_with_its_run_too(how):
    """It stayed, even when the notebook had ended."""
    pids = run(flee, 2, how)
    assert len(set(pids)) == 2 and not any(map(running, pids))  # at once


def flee_and_print(comm):
    printing = "while True: print('x' * 1000)"
    subprocess.Popen([sys.executable, "-c", printing], start_new_session=True)


def test_who_prints_for_ever_in_a_session_of_its_own_does_not_keep_the_launcher():
    run(flee_and_print, 1, limit=60)
    assert gone(ranks_alive())


@pytest.mark.parametrize("interrupted", ["reserved", "send"])  # before and after their forks
def test_an_interrupt_while_ranks_start_leaves_none(monkeypatch, interrupted):
    """The first launcher had nobody to stop a workers whose making was interrupted."""
    run(whoami, 2)
    assert gone(ranks_alive())

    def interrupt(*args):
        end = time.monotonic() + 10
        while not ranks_alive() and time.monotonic() < end:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers_module, interrupted, interrupt)
    with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps its last error
        run(whoami, 3)
    assert gone(ranks_alive())
    del kept


def end_the_leader(comm):
    if comm.rank == 0:
        os.kill(os.getppid(), 9)
    comm.barrier()
    while True:
        time.sleep(1)


def test_a_run_whose_leader_is_killed_fails_and_the_next_one_does_not():
    """The first launcher then waited for ever for news from nobody; the next one blamed rank 0."""
    sentence = r"^the process that held the ranks was ended \(out of memory\?\), and they with it$"
    with pytest.raises(CommError, match=sentence):
        run(end_the_leader, 2)
    assert gone(ranks_alive())
    assert run(whoami, 2)[1][:2] == (1, 2)


def test_a_fork_server_that_is_killed_is_replaced():
    run(whoami, 1)
    alive = (p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE)
    (server,) = [p for p in alive if "fork_server.py" in " ".join(p.cmdline())]
    server.kill()
    assert gone([server.pid])
    assert run(whoami, 2)[1][:2] == (1, 2)


QUIET = """
    import os, select, socket, sys
    from course.worlds.local.fork_server import QUIET_S, preload_when_idle
    server, notebook = socket.socketpair()
    if "leader" in sys.argv and os.fork() == 0:
        select.select([], [], [], 2 * QUIET_S)
        notebook.send(b"r")
        os._exit(0)
    if "asked" in sys.argv:
        notebook.send(b"r")
    preload_when_idle(server)
    print("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("busy", ["", "leader", "asked"])
def test_the_fork_server_imports_what_an_optimiser_needs_once_nobody_needs_it(busy):
    """In each rank it took 1.3 s of processor time."""
    command = [sys.executable, "-c", textwrap.dedent(QUIET), busy]
    assert subprocess.run(command, capture_output=True, text=True).stdout == f"{not busy}\n"


def test_a_run_within_a_run():
    def both(comm):
        return run(lambda inner: (comm_rank, inner.rank), 2) if (comm_rank := comm.rank) else None

    assert run(both, 2) == [None, [(1, 0), (1, 1)]]
    assert gone(ranks_alive())


def outlives(comm, seconds):
    """Rank 0 ends at once; rank 1 hears of it, and returns so much later."""
    if comm.rank == 0:
        os._exit(3)
    with pytest.raises(PeerLost):
        comm.recv(torch.empty(1), 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


def test_the_others_may_go_on_for_as_long_as_they_are_given():
    def error(seconds, **options):
        with pytest.raises(RankError, match="rank 0 exited with status 3") as caught:
            run(outlives, 2, seconds, **options)
        return caught.value

    patient = error(1.5 * GRACE_S, on=processes(grace_s=math.inf))
    assert patient.values == {1: "done"} and not patient.running
    hasty = error(1000, on=processes(grace_s=0))
    assert hasty.values == {} and list(hasty.running) == [1]
    with pytest.raises(ValueError, match="grace_s is a number of seconds, 0 or more, not -1"):
        run(outlives, 2, 0, on=processes(grace_s=-1))


# The bounds of a run


def never_all_return(comm):
    if comm.rank == 1:
        while True:
            time.sleep(1)
    if comm.rank == 2:
        comm.recv(torch.zeros(1), 1)
    return "done"


def test_a_run_that_is_not_over_at_its_limit_says_where_each_rank_was():
    """An answer that never returned stopped the notebook: `timeout` bounds a blocked call alone."""
    with pytest.raises(RunTimeout, match="^the run was not over after 2 s") as caught:
        run(never_all_return, 3, limit=2)
    error = caught.value
    assert (error.rank, error.failures, error.values) == (None, {}, {0: "done"})
    for rank, line in ((1, "time.sleep(1)"), (2, "comm.recv(torch.zeros(1), 1)")):
        assert error.running[rank].startswith(", in never_all_return, line ")
        assert error.running[rank].endswith(": " + line)  # the learner's line, none of ours
        assert f"rank {rank} was still running{error.running[rank]}" in str(error)
    assert gone(ranks_alive())


def test_a_limit_changes_nothing_for_a_run_that_keeps_it():
    assert run(whoami, 2, limit=60)[1][:2] == (1, 2)
    with pytest.raises(RankError, match="rank 0 failed: ZeroDivisionError"):
        run(lambda comm: 1 / comm.rank, 2, limit=60)


@pytest.mark.parametrize(
    "option, sentence",
    [
        ({"limit": 0}, "a limit is a positive number of seconds, or None, not 0"),
        ({"limit": "1"}, "a limit is a positive number of seconds, or None, not '1'"),
        ({"timeout": math.nan}, "a time-out is a positive number of seconds, or None, not nan"),
        ({"live": "no"}, "live is True or False, not 'no'"),  # it counted as true
        ({"checked": None}, "checked is True or False, not None"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(option, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        run(whoami, 2, **option)


# What cannot start

FRESH = """
    import os, resource, sys
    os.environ.update(SETTINGS)
    from course.comm import CommError
    from course.worlds import processes, run
    from course.worlds.local import workers
    BODY
"""


def fresh(tmp_path, body, **settings):
    """What a script prints whose environment is changed before its first run."""
    text = textwrap.dedent(FRESH).replace("SETTINGS", repr(settings))
    path = tmp_path / "script.py"
    path.write_text(text.replace("BODY", textwrap.dedent(body)))
    environment = os.environ | {"PYTHONPATH": ROOT}
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def test_ranks_run_the_same_course_as_the_notebook_and_find_the_same_library(tmp_path):
    """They ran the one on PYTHONPATH; a learner's `queue.py` there kept them from starting."""
    other = tmp_path / "other"
    (other / "course").mkdir(parents=True)
    (other / "course" / "__init__.py").write_text("raise ImportError('another course')")
    (other / "queue.py").write_text("raise ImportError('no queue of ours')")
    body = """
        import course
        def where(comm):
            import course
            from course.collectives import all_reduce
            return course.__file__, os.environ["PYTHONPATH"], os.environ["PYTHONHOME"]
        ((file, path, home),) = run(where, 1)
        print(file == course.__file__, path == home == os.environ["PYTHONPATH"])
    """
    settings = {"PYTHONPATH": str(other), "PYTHONHOME": str(other)}
    assert fresh(tmp_path, body, **settings) == "True True\n"


def test_a_fork_server_that_cannot_import_says_why(tmp_path):
    """Rank 0 was blamed: `was ended by SIGKILL`."""
    body = """
        import torch
        sys.path = [entry for entry in sys.path if "packages" not in entry]
        workers.sys.executable = sys.executable = EXECUTABLE
        try:
            run(lambda comm: 1, 2)
        except CommError as error:
            print(error)
    """
    bare = f"{sys.base_prefix}/bin/python3"
    said = fresh(tmp_path, body.replace("EXECUTABLE", repr(bare)))
    assert said.startswith("the fork server could start no ranks: Traceback")
    assert said.endswith("ModuleNotFoundError: No module named 'torch'\n")


def test_a_fork_server_that_cannot_even_start_says_how_it_ended(tmp_path):
    body = """
        import course.worlds.helper
        sys.executable = "/bin/false"
        try:
            run(lambda comm: 1, 2)
        except CommError as error:
            print(error)
    """
    sentence = "the fork server could start no ranks: it has ended with status 1\n"
    assert fresh(tmp_path, body) == sentence


def test_ranks_that_need_more_open_files_than_allowed_are_refused_and_leave_none(tmp_path):
    """It was `[Errno 24]`, and each try left some open."""
    body = """
        run(lambda comm: 1, 1)
        files = lambda: len(os.listdir("/proc/self/fd"))
        before = files()
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 9, before + 20))
        for _ in range(2):
            try:
                run(lambda comm: 1, 12, on=processes(oversubscribe=True))
            except CommError as error:
                print(error)
            print(files() - before)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        print(run(lambda comm: comm.rank, 4), soft - before)
    """
    said = fresh(tmp_path, body).splitlines()
    assert said[0].startswith("12 ranks need 36 open files here, more than are left of the ")
    assert said[1] == said[3] == "0" and said[4] == "[0, 1, 2, 3] 9"


def test_a_working_directory_that_was_removed_is_named(tmp_path, monkeypatch):
    """It was `FileNotFoundError`, from a file of ours."""
    (tmp_path / "short").mkdir()
    monkeypatch.chdir(tmp_path / "short")
    (tmp_path / "short").rmdir()
    with pytest.raises(CommError, match="^ranks start in the working directory of this process, w"):
        run(whoami, 2)
    monkeypatch.chdir(tmp_path)
    assert run(whoami, 2)[1][:2] == (1, 2)
