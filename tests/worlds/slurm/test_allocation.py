"""The nodes of a job: asked for, kept, given back; what Slurm refuses."""

import ast
import re
import subprocess
import sys

import pytest

from course.comm import CommError
from course.worlds import run, slurm
from course.worlds.slurm import allocation
from tests.worlds.slurm.programs import (
    PATIENCE_S,
    agents,
    host_of,
    program,
    release,
    summed,
    until,
)

pytestmark = pytest.mark.usefixtures("at_box")

BAD = {
    "no such partition": (slurm(partition="gpu"), CommError, r"there are: box, closed \(down\)"),
    "a partition that is down": (
        slurm(partition="closed"),
        CommError,
        r"its partition is down \(PartitionDown\); name another partition, there are: box, closed",
    ),
    "too many nodes": (slurm(nodes=9), CommError, "its partition has not so many nodes"),
    "too many cores": (slurm(cpus_per_node=64), CommError, "Slurm gave no nodes: |cannot start"),
    "an option that srun does not know": (slurm(options=("--no-such",)), CommError, "no-such"),
    "time": (slurm(time="ten minutes"), ValueError, "as Slurm does"),
    "no node": (slurm(nodes=0), ValueError, "from 1 to that of the ranks, 2, not 0"),
    "half a node": (slurm(nodes=1.5), ValueError, "from 1 to that of the ranks"),
    "cores": (slurm(cpus_per_node=-1), ValueError, "cpus_per_node is a whole number"),
    "keep_s": (slurm(keep_s=-1), ValueError, "keep_s is a number of seconds"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_told_in_a_sentence_and_leaves_no_job(box, case):
    release()
    world, kind, sentence = BAD[case]
    with pytest.raises(kind, match=sentence):
        run(summed, 9 if world.nodes == 9 else 2, on=world)
    assert until(lambda: not box.ask("squeue", "--noheader"))


def test_a_suspended_node_is_named_and_given_back(monkeypatch):
    """The run before it would have waited for ever."""
    monkeypatch.setattr(allocation, "ANSWER_S", 1.0)
    run(summed, 2, on=slurm(nodes=2))
    agent = agents()[-1]
    agent.suspend()
    told = f"node {host_of(agent)} was lost before the run began, or has said nothing for 1 s"
    with pytest.raises(CommError, match=told):
        run(summed, 2, on=slurm(nodes=2))
    assert run(summed, 2, on=slurm(nodes=2))[1][3] == 1.0  # on fresh nodes
    assert until(lambda: not agent.is_running())


def test_nodes_that_are_not_used_are_given_back(box):
    release()
    run(summed, 2, on=slurm(nodes=2, keep_s=0.2))
    assert until(lambda: not box.ask("squeue", "--noheader"))
    assert run(summed, 2, on=slurm(nodes=2, keep_s=0.2))[1][3] == 1.0  # and asked for anew
    release()


DEATHS = {
    "before a word": (
        "os.kill(os.getpid(), 9)",
        "the nodes were lost before the run began: n.: task .: Killed",
    ),
    "before it could say anything": ("wait()", "only 0 of 2 nodes had answered after 2 s"),
    "before the launcher knocks": (
        "say('127.0.0.1', closed); wait()",
        "node n. was lost before the run began, or a firewall is before it: no connection to 127",
    ),
    "before it has let the launcher in": (
        "say(*door.getsockname()); wait()",
        "node n. was lost before the run began, or has said nothing for 2 s",
    ),
}
AGENT = """
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as free:
    closed = free.getsockname()[1]
door = socket.create_server((socket.gethostbyname(socket.gethostname()), 0))
wait = sys.stdin.read

def say(host, port):
    os.write(1, f"agent {socket.gethostname()} {host} {port} 1.0\\n".encode())

"""


@pytest.mark.parametrize("death", DEATHS)
def test_an_agent_that_is_lost_before_the_run_begins_is_told(box, tmp_path, monkeypatch, death):
    release()
    does, sentence = DEATHS[death]
    (tmp_path / "agent.py").write_text(AGENT + does)
    monkeypatch.setattr(allocation.agent, "__file__", str(tmp_path / "agent.py"))
    monkeypatch.setattr(allocation, "AGENT_S", 2.0)
    with pytest.raises(CommError, match=sentence):
        run(summed, 2, on=slurm(nodes=2))
    assert until(lambda: not box.ask("squeue", "--noheader"))


def in_a_job(nodes, command):
    """What is printed by a shell command in an allocation of so many nodes."""
    job = ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks={nodes}", "--cpus-per-task=2"]
    return subprocess.run(
        [*job, "sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.fixture
def notebook(tmp_path):
    """A command that does a run over two nodes."""
    (tmp_path / "program").write_text(program("print(run(host, 4, on=slurm(nodes=2)))"))
    return f"{sys.executable} {tmp_path}/program"


@pytest.mark.parametrize("notebooks", [1, 2])
def test_inside_a_job_a_run_is_a_step_of_it(box, notebook, notebooks):
    """As from notebooks of a server that lives in an allocation."""
    release()
    done = in_a_job(2, " & ".join([notebook] * notebooks) + "; wait")
    lines = done.stdout.splitlines()
    assert len(lines) == notebooks, done.stderr
    for found in map(ast.literal_eval, lines):
        assert [node for _, node in found] == [0, 0, 1, 1]
        assert len({host for host, _ in found}) == 2
    assert until(lambda: not box.ask("squeue", "--noheader"))


def test_a_job_of_fewer_nodes_than_a_run_wants_is_told(box, notebook):
    release()
    done = in_a_job(1, notebook)
    told = (
        "Slurm gave no nodes: Only allocated 1 nodes asked for 2 (the job around this process must"
    )
    assert f"CommError: {told} have as many nodes" in done.stderr
    assert until(lambda: not box.ask("squeue", "--noheader"))


def without_munge(text, _):
    return text.replace("munge.socket", "no.socket")


def without_a_controller(text, port):
    return text.replace(f"SlurmctldPort={port}", "SlurmctldPort=9")


ABSENT = {
    without_munge: "munge, which tells Slurm who asks, does not run on this machine",
    without_a_controller: "Unable to contact slurm controller .* .wait, or ask who looks after it",
}


@pytest.mark.parametrize("absent", ABSENT)
def test_what_of_slurm_does_not_answer_is_told(box, tmp_path, monkeypatch, absent):
    release()
    text = (box.folder / "slurm.conf").read_text()
    port = re.search(r"SlurmctldPort=(\d+)", text)[1]
    (tmp_path / "slurm.conf").write_text(absent(text, port))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    with pytest.raises(CommError, match=ABSENT[absent]):
        run(summed, 2, on=slurm(nodes=2))
    assert "Slurm's controller does not answer here" in slurm.available()


NOT_FOR_ALL = {
    "AllowGroups=staff": (
        slurm(partition="members", options=("--uid=nobody",)),
        r"group not permitted to use this partition \(name another, slurm\(partition=...\); there",
    ),
    "AllowAccounts=course": (
        slurm(partition="members", account="other"),
        r"job \d+ cannot start: its account or quality of service may not use its partition \(Job",
    ),
}


@pytest.mark.parametrize("rule", NOT_FOR_ALL)
def test_who_may_not_use_a_partition_is_told(box, rule):
    release()
    world, sentence = NOT_FOR_ALL[rule]
    box.ask("scontrol", "create", "PartitionName=members", "Nodes=n1", rule)
    try:
        with pytest.raises(CommError, match=sentence):
            run(summed, 2, on=world)
        assert until(lambda: not box.ask("squeue", "--noheader"))
    finally:
        box.ask("scontrol", "delete", "PartitionName=members")
