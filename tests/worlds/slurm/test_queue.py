"""What Slurm says of a job that waits, in sentences."""

import re

import pytest

from course.worlds.slurm import queue


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs that print what a test says, in place of Slurm's."""

    def write(name, text):
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        file.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return write


def test_where_a_job_stands(programs):
    programs("squeue", "17|PENDING|Resources")
    assert queue.waiting("course-1") == ("17", "PENDING", "Resources")
    told = queue.sentence("17", "Resources")
    assert told == (
        "job 17 waits in Slurm's queue (Resources); `squeue --start --job=17` says when it may "
        "start"
    )


@pytest.mark.parametrize("said", ["", "slurm_load_jobs error: no contact"])
def test_no_such_job(programs, said):
    programs("squeue", said)
    assert queue.waiting("course-1") == ("", "", "")


def test_without_slurm_nothing_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert queue.ask("squeue") == "" and queue.partitions() == "none"


REFUSED = {
    "PartitionDown": "its partition is down (PartitionDown); name another partition, there are:",
    "(BadConstraints)": "no node is as it asks for ((BadConstraints)); `sinfo --Node --long` shows",
    "InvalidQOS": "its quality of service is not known (InvalidQOS); name one of yours",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_reason_that_does_not_pass_is_a_refusal_and_says_what_to_do(programs, reason):
    programs("sinfo", "gpu up")
    assert queue.refusal("17", reason).startswith(f"job 17 cannot start: {REFUSED[reason]}")


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None", ""])
def test_a_reason_that_passes_is_none(reason):
    assert queue.refusal("17", reason) is None


def test_who_may_not_use_a_partition_does_not_wait():
    """Slurm says so in a sentence, not by a word of its list; the job waited for ever."""
    known = "Job's account not known, so it can't use this partition (paid allows course)"
    assert f"may not use its partition ({known}); name another" in queue.refusal("17", known)


def test_what_srun_says_is_one_sentence_and_says_what_to_do():
    said = [
        "srun: job 8 queued and waiting for resources\n",
        "slurmstepd-n2: error: *** STEP 8.0 ON n2 CANCELLED DUE TO TIME LIMIT ***\n",
        "srun: error: n2: task 0: Terminated\n",
        "srun: error: n2: task 0: Terminated\n",
    ]
    step = "slurmstepd-n2: error: *** STEP 8.0 ON n2 CANCELLED DUE TO TIME LIMIT ***"
    advice = 'ask for more time, slurm(time="01:00:00"), and inside a job for a longer job'
    assert queue.said(said) == f"{step}; n2: task 0: Terminated ({advice})"
    assert queue.said(["srun: error: something else"]) == "something else"


@pytest.mark.parametrize("first, advice", [
    ("n2: task 1: Killed", "was memory short"),
    ("n2: task 1: Exited with exit code 1", "tell the authors"),
    ("Node failure on n2", "the next run asks for other nodes"),
    ("", "somebody has ended the job, as by scancel"),
])  # fmt: skip
def test_a_step_that_is_cancelled_is_the_consequence_of_what_else_is_said(first, advice):
    cancelled = "slurmstepd-n1: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-23T16:07:51 ***"
    for lines in ([first, cancelled], [cancelled, first]):
        assert re.search(rf"\(.*{advice}", queue.said(lines))


def test_partitions_in_words(programs):
    programs("sinfo", "gpu up\nold down\ncpu up\ngpu up")
    assert queue.partitions() == "cpu, gpu, old (down)"
