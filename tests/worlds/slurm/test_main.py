"""A function of the book under srun, without a notebook."""

import os
import subprocess
import sys

import pytest

from course.worlds.slurm.__main__ import meeting


def srun(box, function, **environment):
    program = ["-m", "course.worlds.slurm", f"tests.worlds.programs_of_ranks:{function}"]
    step = ["srun", "--ntasks=4", "--nodes=2", "--kill-on-bad-exit=1"]
    here = os.environ | box.environment | environment
    return subprocess.run(
        [*step, sys.executable, *program], capture_output=True, text=True, timeout=240, env=here
    )


def test_the_same_function_runs_on_the_tasks_of_a_step(box):
    done = srun(box, "summed", COURSE_SECRET="a secret")
    said = sorted(line.split() for line in done.stdout.splitlines())
    assert [(rank, node, total) for rank, _, node, _, total in said] == [
        ("0", "0", "24.0"), ("1", "0", "24.0"), ("2", "1", "24.0"), ("3", "1", "24.0"),
    ], done.stderr  # fmt: skip
    assert len({host for *_, host, _ in said}) == 2


def test_a_failure_is_told_with_its_node_and_ends_all(box):
    done = srun(box, "fails", COURSE_SECRET="a secret")
    assert done.returncode and "KeyError: 'of rank 1'" in done.stderr
    assert "rank 1 on n" in done.stderr


def test_without_a_secret_it_says_how_to_make_one():
    with pytest.raises(ValueError, match="export COURSE_SECRET"):
        meeting({"SLURM_PROCID": "0"})


def test_outside_of_a_step_it_says_what_to_do():
    with pytest.raises(ValueError, match=r"from a notebook use run\(..., on=slurm\(\)\)"):
        meeting({})
