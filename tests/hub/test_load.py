"""`hub/load.py`: what learners need is counted, and what cannot be is a sentence."""

import ast
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

HUB = Path(__file__).parents[2] / "hub"
sys.path.append(str(HUB))
import load  # noqa: E402

PARENT = """
import subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
child.wait()
"""


def test_all_that_a_server_has_started_is_counted():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as server:
        child = psutil.Process(int(server.stdout.readline()))
        desks = [SimpleNamespace(server=server), SimpleNamespace(server=None)]
        assert [each.pid for each in load.processes(desks)] == [server.pid, child.pid]
        memory, count, files = load.footprint(desks)
        assert memory > 1e6 and count == 2 and files >= 6
        child.kill()


ONE = """
import load
load.ROUNDS, load.THINK_S, load.LOOK_S, load.OTHER_WORK = 1, 0, 0, 0
print(load.line(1, 0.1))
"""


@pytest.fixture
def folder():
    """A folder whose name is short enough for the sockets in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_learner_learns_and_leaves_nothing(folder):
    """A real server, kernel and run on four ranks; the most of this test are their imports."""
    program, own = [sys.executable, "-c", ONE], {"TMPDIR": str(folder)}
    told = subprocess.run(
        program, cwd=HUB, env=os.environ | own, capture_output=True, text=True, timeout=280
    )
    row, learner_gb = ast.literal_eval(told.stdout)
    learners, _, at_work, at_rest, processes, files, slowest, crowded = row.strip("| ").split("|")
    assert int(learners) == 1 and int(at_work) >= int(at_rest) > 100 and 0.1 < learner_gb < 4
    assert int(files) > int(processes) >= 3  # server, kernel, fork server
    assert (float(slowest.split()[0]) > 20) == ("yes" in crowded)
    every = psutil.process_iter(["environ"])
    its = [each for each in every if own.items() <= (each.info["environ"] or {}).items()]
    assert not psutil.wait_procs(its, 60)[1] and not list(folder.glob("load-*"))


@pytest.mark.parametrize("learner_gb, patience_s, sentence", [
    (1e6, 1.0, "1 learners need about 1000000.0 GB of memory, and .* are free: not tried"),
    (0.1, 0.0, "1 learners are too many for .* cores: after 0 s not all had run 3 times"),
])  # fmt: skip
def test_what_cannot_be_measured_is_told(monkeypatch, learner_gb, patience_s, sentence):
    monkeypatch.setattr(load, "PATIENCE_S", patience_s)
    told, still = load.line(1, learner_gb)
    assert re.fullmatch(sentence, told) and still == learner_gb


@pytest.mark.parametrize("error", [
    urllib.error.HTTPError("http://here", 500, "Internal Server Error", None, None),
    urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")),
    RuntimeError("the kernel died"),
])  # fmt: skip
def test_a_server_that_fails_is_not_taken_for_a_slow_one(monkeypatch, error):
    def fails(learners):
        raise error

    monkeypatch.setattr(load, "measured", fails)
    with pytest.raises(type(error), match=re.escape(str(error))):
        load.line(1, 0.1)


def test_a_server_that_does_not_answer_in_time_is_a_slow_one(monkeypatch):
    def waits(learners):
        raise urllib.error.URLError(TimeoutError("timed out"))

    monkeypatch.setattr(load, "measured", waits)
    assert "are too many for" in load.line(1, 0.1)[0]
