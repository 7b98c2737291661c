"""Nothing is left of a run whose notebook is interrupted or killed."""

import re
import signal

import psutil
import pytest

from tests.worlds.slurm.programs import PATIENCE_S, agents, python, release, until

pytestmark = pytest.mark.usefixtures("at_box")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_interrupted_or_whose_notebook_is_killed(box, begun, end):
    release()
    program = python("run(sleeps, 2, on=slurm(nodes=2), timeout=None)")
    assert until(begun)
    program.send_signal(end)
    program.communicate(timeout=PATIENCE_S)
    assert until(lambda: not box.ask("squeue", "--noheader"))
    assert until(lambda: not agents())


def test_nothing_is_left_where_all_of_a_user_s_processes_are_killed(box, begun):
    """As when a login node goes down: nobody there is left to give the job back."""
    release()
    program = python("run(sleeps, 2, on=slurm(nodes=2), timeout=None)")
    assert until(begun)
    mine = [psutil.Process(program.pid), *psutil.Process(program.pid).children(recursive=True)]
    assert "srun" in [process.name() for process in mine]
    for process in mine:
        process.suspend()
    for process in mine:
        process.kill()
    program.communicate(timeout=PATIENCE_S)
    assert until(lambda: not box.ask("squeue", "--noheader"))
    assert until(lambda: not agents())


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_job_that_waits_leaves_the_queue_with_its_notebook(box, end):
    release()
    box.ask("sbatch", "--exclusive", "--nodes=4", "--output=/dev/null", "--wrap=sleep 600")
    assert until(lambda: box.ask("squeue", "--noheader", "--states=R"))
    program = python("run(sleeps, 2, on=slurm(nodes=2))")
    assert until(lambda: box.ask("squeue", "--noheader", "--states=PD"))
    if end == signal.SIGINT:
        assert re.search(r"waits in Slurm's queue \(\w+\)", program.stderr.readline())
    program.send_signal(end)
    program.communicate(timeout=PATIENCE_S)
    assert until(lambda: not box.ask("squeue", "--noheader", "--states=PD"))
    box.ask("scancel", "--user=root")
    assert until(lambda: not box.ask("squeue", "--noheader"))
