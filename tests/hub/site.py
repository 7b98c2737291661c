"""A site that offers the book: installed once where learners can only read it, and its hub."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0
# After what stands in the site's file; the last two lines are this machine's: its nodes have no
# names that it could look up, and the test looks into the page.
ANNEX = """
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JobSpawner.state_exechost_re = r"^\\w+ n(\\d+) "
c.JobSpawner.state_exechost_exp = r"{network}.\\1"
c.Spawner.args = [*c.Spawner.args, "--LabApp.expose_app_in_browser=True"]
"""


def until(true, patience_s=PATIENCE_S):
    """What `true()` returns once that is true, or at last."""
    deadline = time.monotonic() + patience_s
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


class Installation:
    """The book and its Python at a place that every user can read and none can write, wherever the
    checkout is: both are mounted there, read-only."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="course-site-"))
        self.folder.chmod(0o755)
        self.book = self._mounted(ROOT, "book")
        base, made = self._mounted(sys.base_prefix, "base"), self._mounted(sys.prefix, "made")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        venv = self.folder / "venv"
        make = [base / "bin" / version, "-m", "venv", "--without-pip", venv]
        subprocess.run(make, check=True, capture_output=True)
        packages = Path("lib", version, "site-packages")
        (venv / packages / "site.pth").write_text(f"{self.book}\n{made / packages}\n")
        (venv / "etc").symlink_to(made / "etc")
        (venv / "share").symlink_to(made / "share")
        (venv / "bin" / "jupyterhub-singleuser").symlink_to(made / "bin" / "jupyterhub-singleuser")
        self.python = venv / "bin" / "python"
        # Of a Python with a library of its own, which it looks for where learners may not go.
        self.environment = {"LD_LIBRARY_PATH": str(base / "lib")}

    def _mounted(self, source, name) -> Path:
        place = self.folder / name
        place.mkdir()
        subprocess.run(["mount", "--bind", source, place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        return place

    def remove(self):
        for name in ("book", "base", "made"):
            subprocess.run(["umount", "--lazy", self.folder / name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Hub:
    """`with Hub(kind, installation, box) as hub:` is ready for learners at `hub.url`."""

    def __init__(self, kind, installation, box, data):
        self.kind, self.installation, self.box = kind, installation, box
        self.folder = Path(tempfile.mkdtemp(prefix="course-hub-"))
        self.url, self.proxy_port, self.hub_port = (*self._ports(),)
        self.host = f"{box.network}.254" if kind == "job" else "127.0.0.1"
        self.settings = {
            'BOOK = Path(__file__).resolve().parents[1]': f'BOOK = Path("{installation.book}")',
            'kind="login"': f'kind="{kind}"',
            'state="/var/lib/course-hub"': f'state="{self.folder / "state"}"',
            'partition=""': 'partition="box"',
            "idle_minutes=60": "idle_minutes=0.5",
            "data=None": f'data="{data}"',
            'environment={"COURSE_CROWDED": 4}': f"environment={installation.environment}",
            'address="127.0.0.1"': f'address="{self.host}"',
            "--nodes=1": "--nodes=2",
            "--time=04:00:00": "--time=00:30:00",
            ' "--mem=8G",': "",
            "http://127.0.0.1:8000": self.url,
        }  # fmt: skip

    def _ports(self):
        with contextlib.ExitStack() as held:
            ports = [held.enter_context(socket.create_server(("", 0))).getsockname()[1]
                     for _ in range(3)]  # fmt: skip
        return f"http://127.0.0.1:{ports[0]}", *ports[1:]

    def configuration(self) -> str:
        """The file that a site changes, changed for this machine."""
        text = (ROOT / "hub" / "jupyterhub_config.py").read_text()
        for old, new in self.settings.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text + ANNEX.format(
            hub_port=self.hub_port, proxy_port=self.proxy_port, network=self.box.network
        )

    def __enter__(self):
        file = self.folder / "jupyterhub_config.py"
        file.write_text(self.configuration())
        without = ("COURSE_", "PYTEST", "PYTHONPATH", "JUPYTER")
        here = {k: v for k, v in os.environ.items() if not k.startswith(without)}
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [self.installation.python, "-m", "jupyterhub", "-f", file],
                cwd=self.folder, env=here | self.box.environment, stdout=log, stderr=log,
            )  # fmt: skip
        if not until(self._answers):
            self.__exit__()
            raise RuntimeError(f"the hub did not come up: {self.log()}")
        return self

    def _answers(self):
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError, ValueError):
            return json.load(urllib.request.urlopen(f"{self.url}/hub/api/", timeout=5))

    def log(self) -> str:
        return re.sub(r"\n\s*\n", "\n", (self.folder / "log").read_text())

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)
