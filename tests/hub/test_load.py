"""`hub/load.py`: what learners need is counted, and what cannot be is a sentence."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
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


def desk_at(folder, listener, patience_s):
    """A desk whose server listens at this socket; all is to be done in `patience_s`."""
    desk = load.Desk(folder / "0", time.monotonic() + patience_s)
    desk.start, desk.server = lambda: None, SimpleNamespace(pid=1, poll=lambda: None)
    (desk.folder / "own").mkdir()
    (desk.folder / "log").write_text("no kernel for you")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    (desk.folder / "own" / "jpserver-1.json").write_text(json.dumps({"url": url}))
    return desk


def refuse(listener):
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n")


def test_a_server_that_fails_is_not_late(folder):
    """Said «too many learners» of any error of a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse, args=(listener,), daemon=True).start()
        desk = desk_at(folder, listener, 60.0)
        with pytest.raises(RuntimeError, match="500: Broken\nno kernel for you"):
            desk.open()
    with pytest.raises(RuntimeError, match="refused.*\nno kernel for you"):
        desk.open()


def test_a_server_that_says_nothing_is_late(folder):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        desk = desk_at(folder, listener, 0.2)
        with pytest.raises(TimeoutError):
            desk.open()
