"""What Slurm says of a job that waits, in sentences."""

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


@pytest.mark.parametrize("reason", ["PartitionDown", "(BadConstraints)", "InvalidQOS"])
def test_a_reason_that_does_not_pass_is_a_refusal(reason):
    told = queue.refusal("17", reason)
    assert told.startswith("job 17 cannot start: ") and "`scontrol show job 17`" in told


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None", ""])
def test_a_reason_that_passes_is_none(reason):
    assert queue.refusal("17", reason) is None


def test_who_may_not_use_a_partition_does_not_wait():
    """Slurm says so in a sentence, not by a word of its list; the job waited for ever."""
    known = "Job's account not known, so it can't use this partition (paid allows course)"
    assert f"may not use its partition ({known})" in queue.refusal("17", known)


def test_what_srun_says_is_one_sentence_and_says_what_to_do():
    said = [
        "srun: job 8 queued and waiting for resources\n",
        "slurmstepd-n2: error: *** STEP 8.0 ON n2 CANCELLED DUE TO TIME LIMIT ***\n",
        "srun: error: n2: task 0: Terminated\n",
        "srun: error: n2: task 0: Terminated\n",
    ]
    step = "slurmstepd-n2: error: *** STEP 8.0 ON n2 CANCELLED DUE TO TIME LIMIT ***"
    advice = 'ask for more time, slurm(time="01:00:00")'
    assert queue.said(said) == f"{step}; n2: task 0: Terminated ({advice})"
    assert queue.said(["srun: error: something else"]) == "something else"


def test_partitions_in_words(programs):
    programs("sinfo", "gpu\ncpu\ngpu")
    assert queue.partitions() == "cpu, gpu"
