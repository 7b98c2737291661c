import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import slurm_box
from tests.hub.learners import Learner, remove
from tests.hub.site import ROOT, Installation

NEEDED = "useradd", "chpasswd", "runuser", "setpriv", "mount"


def missing():
    """Why there can be no hub here; None if there can."""
    if why := slurm_box.missing():
        return why
    if absent := [name for name in NEEDED if shutil.which(name) is None]:
        return f"not here: {', '.join(absent)}"
    packages = [
        name for name in ("jupyterhub", "batchspawner") if not importlib.util.find_spec(name)
    ]
    if packages or not (ROOT / "hub" / "node_modules" / ".bin").exists():
        return "no hub is installed here: `make hub-test` does that (it needs npm)"
    if sys.prefix == sys.base_prefix:
        return "the site's Python is made from this one's venv, and it has none"
    probe = ["unshare", "--mount", "mount", "--bind", "/tmp", "/tmp"]
    done = subprocess.run(probe, capture_output=True, text=True)
    return f"nothing can be mounted here: {done.stderr.strip()}" if done.returncode else None


@pytest.fixture(scope="session")
def installation():
    if why := missing():
        pytest.skip(why)
    made = Installation()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def box(installation):
    with slurm_box.SlurmBox(nodes=2, cpus=32) as made:
        yield made


@pytest.fixture(scope="session")
def data():
    """What a site has staged, for all to read."""
    with tempfile.TemporaryDirectory(prefix="course-data-") as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "pictures").mkdir()
        yield folder


@pytest.fixture
def learners(installation):
    """For each kind of hub three with an account, and a stranger who has one, too."""
    homes = Path(tempfile.mkdtemp(prefix="course-homes-"))
    homes.chmod(0o755)
    made = []
    try:
        for _ in range(8):
            made.append(Learner(homes))
        yield made
    finally:
        remove(made)
        shutil.rmtree(homes, ignore_errors=True)
