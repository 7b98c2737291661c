"""`hub/learner.py`: a folder for a server's keys, which goes with it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

LEARNER = Path(__file__).parents[2] / "hub" / "learner.py"
SERVER = """
import os, pathlib, signal, sys
own = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
(own / "key").touch()
pathlib.Path("notebook").touch()
mode = [path.stat().st_mode & 0o777 for path in (own, own / "key", pathlib.Path("notebook"))]
print(own, *map(oct, mode), os.environ["TORCHINDUCTOR_CACHE_DIR"], flush=True)
if sys.argv[1:] == ["wait"]:
    signal.pause()
sys.exit(5)
"""


def server(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, LEARNER, sys.executable, "-c", SERVER, *arguments], cwd=tmp_path,
        stdout=subprocess.PIPE, text=True, env={"HOME": str(tmp_path)}, umask=0,
    )  # fmt: skip


def test_what_a_server_writes_is_for_its_learner_alone(tmp_path):
    with server(tmp_path) as running:
        own, *modes, compiled = running.stdout.read().split()
    assert modes == ["0o700", "0o600", "0o600"] and running.returncode == 5
    assert compiled == f"{tmp_path}/.cache/torchinductor"
    assert not Path(own).exists()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_server_that_is_to_end_does_and_leaves_no_folder(tmp_path, end):
    with server(tmp_path, "wait") as running:
        own = running.stdout.readline().split()[0]
        assert Path(own).exists()
        running.send_signal(end)
    assert running.returncode in (-signal.SIGTERM, 256 - signal.SIGTERM)
    assert not Path(own).exists()
