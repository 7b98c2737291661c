"""What happens to a cluster while it is used: each time one sentence with what happened and what to
do, and nothing is left of the run, neither in the queue nor on a node."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest
import torch

from course.comm import CommError
from course.worlds import RankError, run, slurm
from course.worlds.slurm import allocation, node_workers
from tests.worlds.slurm.programs import (
    PATIENCE_S,
    after,
    begins,
    kept,
    left,
    program,
    release,
    summed,
    time_is_over,
    until,
)

pytestmark = pytest.mark.usefixtures("at_box", "nothing_is_left")


@pytest.fixture
def nothing_is_left(box):
    release()
    yield
    release()
    assert until(lambda: not left(box)), left(box)


@contextlib.contextmanager
def updated(box, what, change, back):
    """Something that Slurm knows is changed, for a while."""
    box.ask("scontrol", "update", what, *change)
    try:
        yield
    finally:
        box.ask("scontrol", "update", what, *back)


def test_a_partition_that_is_taken_down_is_told_and_nodes_that_are_held_work_on(box):
    down = updated(box, "PartitionName=box", ["State=DOWN"], ["State=UP"])
    told = (
        r"job \d+ cannot start: its partition is down \(PartitionDown\); name another partition, "
        r"there are: box \(down\), closed \(down\)"
    )
    run(summed, 2, on=slurm(nodes=2))
    with down:
        assert run(summed, 2, on=slurm(nodes=2))[1][3] == 1.0
        release()
        assert slurm.available() == "no partition of this Slurm is up (see `sinfo`)"
        with pytest.raises(CommError, match=told):
            run(summed, 2, on=slurm(nodes=2))
        assert until(lambda: not left(box))
    assert run(summed, 2, on=slurm(nodes=2))[1][3] == 1.0


def test_a_node_that_slurm_takes_for_dead_is_told_and_the_next_run_has_fresh_ones(box, begun):
    run(summed, 2, on=slurm(nodes=2))
    lost = kept().agents[1].node
    told = (
        rf"failed: PeerLost: node n\d was lost, with all that ran there \(Slurm says: .*"
        rf"{lost}.*the next run asks for other nodes; `sinfo --list-reasons` says more"
    )
    with contextlib.ExitStack() as until_now:
        dies = updated(box, f"NodeName={lost}", ["State=DOWN", "Reason=test"], ["State=RESUME"])
        dying = after(begun, lambda: until_now.enter_context(dies))
        with dying, pytest.raises(RankError, match=told):
            run(begins, 2, on=slurm(nodes=2), timeout=None, limit=PATIENCE_S)
    assert run(summed, 2, on=slurm(nodes=2))[1][3] == 1.0


def cable(box, node, state):
    """Pull it, or plug it in."""
    box.ask("ip", "-n", box.switch, "link", "set", node.replace("n", "port"), state)


def hears(comm):
    """Rank 0 nothing of rank 1, once the cable is out."""
    folder = pathlib.Path(os.environ["BEGUN"])
    (folder / str(comm.rank)).touch()
    while comm.rank or not (folder / "out").exists():
        time.sleep(0.01)
    comm.recv(torch.empty(1), 1)


@pytest.fixture
def pull(box, tmp_path, begun):
    """Pulls the cable of the second node of a run once its ranks have begun; it is plugged in
    again at last."""
    run(summed, 2, on=slurm(nodes=2))
    node = kept().agents[1].node

    def out():
        cable(box, node, "down")
        (tmp_path / "out").touch()

    yield lambda: after(begun, out)
    cable(box, node, "up")
    with updated(box, f"NodeName={node}", ["State=DOWN", "Reason=test"], ["State=RESUME"]):
        pass  # as administrators do: by itself Slurm ends what is left there after a minute or two


def test_a_pulled_cable_ends_a_run_within_its_time_out_and_the_node_is_named(pull, monkeypatch):
    monkeypatch.setattr(node_workers, "END_S", 1.0)
    told = (
        r"rank 0 on n\d failed: CommTimeout: rank 0 waited 1 s in recv from rank 1(.|\n)*"
        r"rank 1 on (n\d) \(which no longer answers: `sinfo --nodes=\2` may say why\) was still"
    )
    with pull(), pytest.raises(RankError, match=told):
        run(hears, 2, on=slurm(nodes=2), timeout=1.0)
    assert run(summed, 2, on=slurm(nodes=2))[1][3] == 1.0  # on other nodes


def test_a_pulled_cable_is_noticed_where_nobody_waits_for_a_message(pull, monkeypatch):
    """After 45 s of silence; here after 2."""
    monkeypatch.setattr(allocation, "LAST_S", 1.0)
    for agent in kept().agents:
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
            agent.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), 1)
    told = (
        r"rank 1 on (n\d) failed: PeerLost: node \1 was lost, with all that ran there \(Slurm says "
        r"nothing: its cable, its power\? The next run asks for fresh nodes\)"
    )
    with pull(), pytest.raises(RankError, match=told):
        run(begins, 2, on=slurm(nodes=2), timeout=None, limit=PATIENCE_S)
    assert run(summed, 2, on=slurm(nodes=2))[1][3] == 1.0


LONG = "run(sleeps, 2, on=slurm(nodes=2), timeout=None)"
OVER = (
    r'TIME LIMIT.*\(ask for more time, slurm\(time="01:00:00"\), and inside a job for a longer job'
)
PLACES = {
    "login": ([], f"PeerLost: node n. was lost.*Slurm says: .*{OVER}"),
    "allocation": (["salloc", "--quiet", "--nodes=2", "--ntasks=2"], f"PeerLost: .*{OVER}"),
    "job": (["sbatch", "--wait", "--nodes=2", "--ntasks=2"], r"JOB \d+ .*DUE TO TIME LIMIT"),
}


def started(place, folder):
    """A notebook that does a long run; each of its ranks leaves a file in the folder."""
    command, _ = PLACES[place]
    notebook = folder.with_suffix(".py")
    notebook.write_text(f"#!{sys.executable}\n{program(LONG)}")
    notebook.chmod(0o755)
    folder.mkdir()
    log = [f"--output={folder}.log"] if "sbatch" in command else []
    return subprocess.Popen(
        [*command, *log, notebook], env=os.environ | {"BEGUN": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def told(notebook, folder, sentence):
    """What a notebook said once it has ended, and whether it failed with the sentence. A job says
    it in its log, perhaps later, and may fail with 0: `sbatch --wait` goes by the state of the job,
    which is over before Slurm has heard how its script ended."""
    log = folder.with_suffix(".log")
    _, said = notebook.communicate(timeout=PATIENCE_S)
    if "sbatch" in notebook.args:
        found = until(lambda: log.exists() and re.search(sentence, log.read_text()))
        return log.read_text(), found
    return said, notebook.returncode and re.search(sentence, said)


def test_a_run_whose_job_s_time_is_over_is_told_on_a_login_node_and_inside_of_the_job(
    box, tmp_path
):
    """All at once, since Slurm looks every half a minute."""
    folders = {place: tmp_path / place for place in PLACES}
    notebooks = {place: started(place, folder) for place, folder in folders.items()}
    assert until(lambda: all(len([*each.iterdir()]) == 2 for each in folders.values()))
    time_is_over(box)
    for place, notebook in notebooks.items():
        said, is_told = told(notebook, folders[place], PLACES[place][1])
        assert is_told, (place, said)
