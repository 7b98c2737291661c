"""Ranks on hosts in a box: the same values, the time of a real Ethernet, and nothing left of it."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest
import torch

import course
from course.collectives import all_reduce
from course.comm import CommError, Trace
from course.worlds import RankError, helper, hosts, processes, run
from course.worlds.netns.world import VirtualCluster, bits_per_s, cluster_for

ROOT = pathlib.Path(course.__file__).parent.parent
WHY_NOT = hosts.available()
needs_hosts = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the whole suite runs as such a user")
MB = 1 << 20
SHAPES = [(1, 3), (2, 1), (2, 2), (3, 1), (4, 1)]


def reduce_often(comm):
    """(what all-reduces of odd sizes gave, what was sent for them)."""
    found = []
    for n in (0, 1, 7, 1001, 100_003):
        x = (torch.arange(2.0 * n) * (comm.rank + 1) + n)[::2]
        all_reduce(comm, x)
        found.append(x)
    return found, str(comm.meter)


@needs_hosts
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_bytes_are_those_of_processes(shape):
    nodes = [host for host in range(shape[0]) for _ in range(shape[1])]
    there = run(reduce_often, len(nodes), on=hosts(*shape, rate="10gbit"))
    here = run(reduce_often, len(nodes), on=processes(nodes))
    for (values, meter), (expected, metered) in zip(there, here, strict=True):
        assert meter == metered
        assert all(torch.equal(x, y) for x, y in zip(values, expected, strict=True))


@needs_hosts
def test_ranks_are_where_their_host_is():
    def where(comm):
        return comm.node, os.stat("/proc/self/ns/net").st_ino

    seen = run(where, 4, on=hosts(2, ranks_per_host=2))
    assert [node for node, *_ in seen] == [0, 0, 1, 1]
    first, again, other, last = (space for _, space in seen)
    assert first == again != other == last
    assert os.stat("/proc/self/ns/net").st_ino not in (first, other)


def transfer(comm, nbytes, pairs, repeat=5) -> float:
    """Seconds for messages between `pairs` of ranks, all at once, at best: from before the first
    byte leaves until after the last has arrived."""
    x, seconds = torch.zeros(nbytes, dtype=torch.uint8), []
    for _ in range(repeat):
        start = comm.clock()
        comm.barrier()
        moves = [comm.irecv(torch.empty_like(x), src) for src, dst in pairs if dst == comm.rank]
        moves += [comm.isend(x, dst) for src, dst in pairs if src == comm.rank]
        for move in moves:
            move.wait()
        comm.barrier()
        seconds.append(comm.clock() - start)
    return min(seconds)


@needs_hosts
@pytest.mark.parametrize(("rate", "megabytes"), [("100mbit", 4), ("1gbit", 16)])
def test_a_message_takes_its_time(rate, megabytes):
    on = hosts(2, rate=rate)
    seconds = min(run(transfer, 2, megabytes * MB, [(0, 1)], on=on))
    assert 0.98 < seconds * on.bytes_per_s / (megabytes * MB) < 1.9


CROWDS = {
    "both ways at once": ([(0, 1), (1, 0)], 1),
    "two to one": ([(1, 0), (2, 0)], 2),
    "one to two": ([(0, 1), (0, 2)], 2),
    "around": ([(0, 1), (1, 2), (2, 0)], 1),
}


@needs_hosts
@pytest.mark.parametrize("crowd", CROWDS)
def test_messages_share_a_link_but_not_its_two_directions(crowd):
    pairs, on_one_link = CROWDS[crowd]
    on = hosts(3, rate="100mbit")
    seconds = min(run(transfer, 3, 2 * MB, pairs, on=on))
    assert 0.97 < seconds * on.bytes_per_s / (2 * MB * on_one_link) < 1.9


@needs_hosts
def test_ranks_of_a_host_need_no_wire():
    on = hosts(2, ranks_per_host=2, rate="10mbit")
    inside, between = (
        min(run(transfer, 4, MB, pairs, 2, on=on)) for pairs in ([(0, 1), (2, 3)], [(1, 2)])
    )
    assert inside < 0.2 * between and between > 0.97 * MB / on.bytes_per_s


def native_sum(comm, n, repeat=3):
    """(the backend's sum of the ranks, its seconds at best)."""
    seconds = []
    for _ in range(repeat):
        x, start = torch.full((n,), float(comm.rank)), comm.clock()
        comm.native.all_reduce(x)
        comm.barrier()
        seconds.append(comm.clock() - start)
    return x[[0, -1]].tolist(), min(seconds)


@needs_hosts
def test_the_backend_goes_over_the_wire():
    on = hosts(2, rate="100mbit")
    for total, seconds in run(native_sum, 2, MB, on=on):
        assert total == [1.0, 1.0]
        assert 0.97 < seconds * on.bytes_per_s / (4 * MB) < 1.9


def mixed_up(comm):
    if comm.rank == 1:
        comm.barrier()
    all_reduce(comm, torch.ones(3))


@needs_hosts
def test_checks_traces_and_endings_are_those_of_processes():
    trace = Trace()
    run(lambda comm: comm.barrier(), 2, on=hosts(2), trace=trace)
    assert {event.operation for event in trace.events} >= {"barrier"}
    with pytest.raises(RankError, match="ranks? 1 is in barrier #1"):
        run(mixed_up, 2, on=hosts(2))
    with pytest.raises(RankError, match="waited 0.5 s in recv from rank"):
        run(lambda comm: comm.recv(torch.ones(1), 1 - comm.rank), 2, on=hosts(2), timeout=0.5)


@needs_hosts
def test_the_cluster_is_kept_and_made_again_once_it_is_gone():
    run(lambda comm: None, 2, on=hosts(2))
    kept = cluster_for(2, 10**9)
    run(lambda comm: None, 2, on=hosts(2))
    assert cluster_for(2, 10**9) is kept and kept.alive
    os.kill(kept.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, kept.process.pid, os.WEXITED | os.WNOWAIT)
    assert run(lambda comm: comm.rank, 2, on=hosts(2)) == [0, 1]
    assert cluster_for(2, 10**9) is not kept
    with pytest.raises(CommError, match="the process that holds them has ended"):
        kept.connection(0, 1)


@needs_hosts
def test_two_clusters_are_kept():
    first, *others = (cluster_for(2, mbit * 10**6) for mbit in (101, 102, 103))
    assert cluster_for(2, 103 * 10**6) is others[1] and cluster_for(2, 102 * 10**6) is others[0]
    assert first.process.returncode == 0 and not first.namespaces
    for use in (lambda: first.connection(0, 1), lambda: first.of_host(1)):
        with pytest.raises(CommError, match="the process that holds them has ended"):
            use()
    assert cluster_for(2, 101 * 10**6) is not first


@needs_hosts
def test_a_process_that_holds_a_cluster_and_does_not_answer_is_given_up(monkeypatch):
    held = VirtualCluster(2, 10**9)
    held.control.settimeout(0.2)
    monkeypatch.setattr(helper, "END_S", 0.1)
    os.kill(held.process.pid, signal.SIGSTOP)
    with pytest.raises(CommError, match="holds them does not answer"):
        held.connection(0, 1)
    assert not held.alive and held.process.returncode == -signal.SIGKILL


@needs_hosts
def test_an_interrupt_between_request_and_answer_gives_nobody_anothers_connection(monkeypatch):
    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    first = cluster_for(3, 10**9)
    monkeypatch.setattr(socket, "recv_fds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.connection(0, 1)
    again = cluster_for(3, 10**9)
    ends = again.connection(1, 2)
    assert again is not first
    assert [end.getsockname()[0] for end in ends] == ["10.0.0.2", "10.0.0.3"]
    for end in ends:
        end.close()


@needs_hosts
def test_threads_get_their_own_connections():
    cluster, found = cluster_for(4, 10**9), {}

    def ask(host):
        ends = [cluster.connection(host, other) for _ in range(5) for other in range(4)]
        found[host] = [end.getsockname()[0] for pair in ends for end in pair]
        for end in sum(ends, []):
            end.close()

    threads = [threading.Thread(target=ask, args=(host,)) for host in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for host in range(4):
        pairs = [(f"10.0.0.{host + 1}", f"10.0.0.{other + 1}") for other in range(4)]
        assert found[host] == [address for pair in pairs for address in pair] * 5


@needs_hosts
def test_forty_hosts_and_no_neighbour_is_looked_for():
    """The machine has 1,024 places for neighbours that hosts have looked for, in one table."""

    def neighbours(comm):
        comm.barrier()
        lines = subprocess.run(["/sbin/ip", "neigh"], capture_output=True, text=True).stdout
        return sorted({line.split()[-1] for line in lines.splitlines()}), lines.count("\n")

    on = hosts(40, oversubscribe=True)
    assert run(neighbours, 40, on=on) == [(["PERMANENT"], 39)] * 40


@needs_hosts
def test_the_backend_keeps_to_the_hosts_wire_whatever_the_site_has_set(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    assert [total for total, _ in run(native_sum, 2, 4, on=hosts(2))] == [[1.0, 1.0]] * 2


HOSTILE = {
    "PATH": "", "HOME": "/nowhere", "TMPDIR": "/nowhere", "LD_LIBRARY_PATH": "/nowhere",
    "PYTHONHOME": "/nowhere", "PYTHONPATH": "FOLDER", "PYTHONSTARTUP": "/nowhere",
}  # fmt: skip


@needs_hosts
def test_the_cluster_is_built_in_strange_surroundings(monkeypatch, tmp_path):
    """A learner's modules and programs in the working folder bear the names of those needed."""
    for name in ("socket.py", "subprocess.py", "ctypes.py"):
        tmp_path.joinpath(name).write_text("raise SystemExit('not this one')")
    for name in ("ip", "tc"):
        tmp_path.joinpath(name).write_text("#!/bin/sh\nexit 1\n")
        tmp_path.joinpath(name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value.replace("FOLDER", str(tmp_path)))
    held = VirtualCluster(2, 10**9)
    assert held.alive
    held.close()


@needs_hosts
def test_the_cluster_is_built_without_standard_input_and_output():
    code = "import os; [os.close(fd) for fd in (0, 1, 2)]; " + (
        "from course.worlds.netns.world import VirtualCluster as V; c = V(2, 10**9); "
        "ends = c.connection(0, 1); ends[0].send(b'x'); os._exit(ends[1].recv(1) == b'x' and 7)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 7


def outcome(program, *, without=()):
    """What a program prints that runs without these capabilities (man capabilities) of root's."""

    def drop():
        for capability in without:
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)

    done = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=drop, cwd=ROOT, text=True, capture_output=True
    )
    assert not done.stderr, done.stderr
    return done.stdout


SETFCAP, SYS_ADMIN = 31, 21
AS_USER = """
from course.worlds import hosts, run
from tests.worlds.netns.test_world import native_sum, reduce_often
if why := hosts.available():
    print(why)
else:
    print(run(native_sum, 3, 10, on=hosts(3))[0][0], len(run(reduce_often, 3, on=hosts(3))[0][0]))
"""


@needs_hosts
@needs_root
@pytest.mark.parametrize("threads", ["1", "4"])
def test_as_an_ordinary_user(threads, monkeypatch):
    """Only a process of one thread may enter the namespace of a user, however many it has then."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    said = outcome(AS_USER, without=[SYS_ADMIN])
    if "kernel allows" in said:
        pytest.skip(said)
    assert said == "[3.0, 3.0] 5\n"


@needs_root
def test_where_the_kernel_forbids_it():
    said = outcome(AS_USER, without=[SYS_ADMIN, SETFCAP])
    assert said.startswith("this machine has no hosts in a box: the kernel allows network namesp")
    assert said.count("\n") == 1 and "as root" in said


def test_elsewhere_than_on_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert hosts.available().endswith("network namespaces, which only Linux has")
    with pytest.raises(CommError, match="only Linux"):
        run(print, 7, on=hosts(7, rate="3gbit", oversubscribe=True))


@pytest.mark.parametrize(("on", "ranks", "rule"), [
    (hosts(4), 3, "4 hosts x 1 ranks make 4 ranks, but there are 3"),
    (hosts(0), 1, "1 to 200 hosts of at least 1 rank, not 0 of 1"),
    (hosts(2, 0), 1, "at least 1 rank, not 2 of 0"),
    (hosts("2"), 2, "at least 1 rank, not '2' of 1"),
    (hosts(2.0), 2, "at least 1 rank, not 2.0 of 1"),
    (hosts(True), 1, "at least 1 rank, not True of 1"),
    (hosts(2, "1"), 2, "at least 1 rank, not 2 of '1'"),
    (hosts(2, None), 2, "at least 1 rank, not 2 of None"),
    (hosts(2, rate="fast"), 2, '"100mbit", not \'fast\''),
    (hosts(2, rate=10**9), 2, "from 1kbit to 100gbit, as \"100mbit\", not 1000000000"),
    (hosts(2, rate="0.000001kbit"), 2, "from 1kbit to 100gbit, .* not '0.000001kbit'"),
    (hosts(2, rate="101gbit"), 2, "from 1kbit to 100gbit, .* not '101gbit'"),
    (hosts(2, rate="9" * 400 + "gbit"), 2, "from 1kbit to 100gbit"),
    (hosts(2, rate="\N{BENGALI DIGIT FOUR}mbit"), 2, "from 1kbit to 100gbit"),
    (hosts(2, rate="0mbit"), 2, "not '0mbit'"),
    (hosts(100), 100, "would mostly wait for one another"),
])  # fmt: skip
def test_hosts_that_cannot_be(on, ranks, rule):
    with pytest.raises(ValueError, match=rule):
        run(print, ranks, on=on)


def test_rates():
    assert [bits_per_s(rate) for rate in ("100mbit", "2.5gbit", "64kbit")] == [
        10**8,
        25 * 10**8,
        64000,
    ]
    assert hosts(2, rate="1gbit").bytes_per_s == pytest.approx(119.55e6, rel=1e-4)


BUSY = """
import os, sys, time
from course.worlds import hosts, run
def busy(comm):
    comm.barrier()
    print(os.getpid(), os.stat("/proc/self/ns/net").st_ino)
    sys.stdout.flush()
    time.sleep(1000)
run(busy, 2, on=hosts(2), live=True)
"""


def spaces() -> set:
    """The network namespaces of all processes, those included that they only hold open."""
    found = set()
    for link in [
        *pathlib.Path("/proc").glob("[0-9]*/ns/net"),
        *pathlib.Path("/proc").glob("[0-9]*/fd/*"),
    ]:
        try:
            where = os.readlink(link)
        except OSError:
            continue
        found |= {where} if where.startswith("net:") else set()
    return found


def traces_on_machine() -> tuple:
    return os.listdir("/sys/class/net"), pathlib.Path("/proc/self/mountinfo").read_text()


@needs_hosts
def test_nothing_is_left_of_a_process_that_is_killed():
    before = traces_on_machine()
    program = subprocess.Popen(
        [sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    lines = [program.stdout.readline() for _ in range(2)]
    family = psutil.Process(program.pid).children(recursive=True)
    used = {f"net:[{line.split()[-1]}]" for line in lines}
    assert len(family) == 5 and len(used & spaces()) == 2  # fork server, leader, ranks, cluster
    program.kill()
    program.communicate()
    psutil.wait_procs(family, 5)
    assert not any(member.is_running() for member in family)
    assert not used & spaces() and traces_on_machine() == before
