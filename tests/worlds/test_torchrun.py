"""A function of the book under torchrun."""

import re
import subprocess
import sys

import pytest

from course.worlds.torchrun import meeting


def torchrun(ranks, function):
    program = ["-m", "course.worlds.torchrun", f"tests.worlds.programs_of_ranks:{function}"]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    return subprocess.run([*launcher, *program], capture_output=True, text=True, timeout=240)


def test_the_same_function_runs_on_its_workers():
    done = torchrun(3, "summed")
    for rank in range(3):
        assert re.search(rf"\b{rank} 3 0 \S+ 9\.0", done.stdout), done.stdout + done.stderr


def test_a_failure_is_told_and_ends_all():
    done = torchrun(2, "fails")
    assert (
        done.returncode and "rank 1 on " in done.stderr and "KeyError: 'of rank 1'" in done.stderr
    )


def test_a_rank_leaves_with_all_done_and_before_its_interpreter_is_taken_apart():
    # in that last part a thread of gloo's that still holds a tensor aborts the process
    done = torchrun(1, "leaves_things")
    assert done.stdout.split() == ["thread", "atexit", "file"], done.stdout + done.stderr


def test_without_torchrun_it_says_how():
    with pytest.raises(ValueError, match="is for workers that torchrun starts: torchrun --nproc"):
        meeting({})
