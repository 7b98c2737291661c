"""A run waits while too many programs want the cores, and not for ever."""

import os
import random
import time

import pytest

from course.worlds import run
from course.worlds.local import crowd, workers


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 2 cores; `machine(12, 9, 3)` lets so many programs compute, look by look."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(crowd, "LOADAVG", tmp_path / "loadavg")
    monkeypatch.setenv(crowd.VARIABLE, "4")
    paused = []

    def look(*computing):
        left = list(computing)
        crowd.LOADAVG.write_text(f"1.0 1.0 1.0 {left.pop(0)}/400 77\n")

        def pause(seconds):
            paused.append(seconds)
            crowd.LOADAVG.write_text(f"1.0 1.0 1.0 {left.pop(0)}/400 77\n")

        monkeypatch.setattr(time, "sleep", pause)
        return paused

    return look


def test_a_run_waits_until_there_is_room(machine, capsys):
    paused = machine(12, 9, 8)
    crowd.wait_for_room()
    assert len(paused) == 2 and set(paused) <= set(crowd.LOOKS_S)
    sentence = "12 programs want the 2 cores of this machine: the run waits for room, 60 s at most."
    assert capsys.readouterr().out == sentence + "\n"


def test_where_there_is_room_nobody_waits_or_is_told(machine, capsys):
    assert machine(8) == []
    crowd.wait_for_room()
    assert capsys.readouterr().out == ""


def test_nobody_waits_without_the_variable(machine, monkeypatch):
    monkeypatch.delenv(crowd.VARIABLE)
    paused = machine(500)
    crowd.wait_for_room()
    assert paused == []


def test_nobody_waits_for_ever(machine, monkeypatch):
    paused = machine(*[500] * 100)
    now = iter(range(0, 1000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    crowd.wait_for_room()
    assert len(paused) == 2  # at 25 and 50 seconds


def test_who_waits_keeps_the_seeds_of_the_program(machine):
    random.seed(3)
    before = random.getstate()
    machine(12, 12, 1)
    crowd.wait_for_room()
    assert random.getstate() == before


def test_a_system_that_does_not_tell_is_not_crowded(machine):
    machine(1)
    crowd.LOADAVG.unlink()
    crowd.wait_for_room()


@pytest.mark.parametrize("wanted", ["many", "0", "-1", "nan"])
def test_what_is_no_number_of_programs(wanted, monkeypatch):
    monkeypatch.setenv(crowd.VARIABLE, wanted)
    rule = f"COURSE_CROWDED is a positive number of programs a core, not {wanted!r}"
    with pytest.raises(ValueError, match=rule):
        run(abs, 1)


def test_a_run_looks_before_it_starts_ranks(monkeypatch):
    looked = []
    monkeypatch.setattr(workers, "wait_for_room", lambda: looked.append(True))
    assert run(lambda comm: comm.rank, 2) == [0, 1] and looked == [True]
