"""The job scripts in examples/ do as they are, with each launcher, on a Slurm of many nodes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course.worlds import processes, run
from examples.digits import main

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.sbatch"))


def submitted(box, script, out):
    """What a job's program prints; it is over when this returns.  Launchers may say things, too."""
    here = os.environ | box.environment | {"PYTHON": sys.executable}
    command = ["sbatch", "--wait", f"--output={out}", script]
    done = subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, timeout=300)
    said = out.read_text()
    assert done.returncode == 0, done.stderr + said
    return [line for line in said.splitlines() if re.match(r"4 ranks|after 200", line)]


@pytest.fixture(scope="module")
def loss():
    """Of the same ranks, on this machine."""
    return run(main, 4, on=processes(nodes=(0, 0, 1, 1)))[0]


def test_there_is_one_for_each_launcher():
    assert [script.stem for script in SCRIPTS] == ["mpirun", "srun", "torchrun"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_job_ends_with_the_loss_of_a_run_from_a_notebook(box, script, loss, tmp_path):
    where, found = submitted(box, script, tmp_path / "out")
    assert where.startswith("4 ranks on 2 nodes, rank 0 on n")
    assert found.startswith(f"after 200 steps: loss {loss:.6f}, ")
