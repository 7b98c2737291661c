"""The report of all probes, in a cell and as a command."""

import os
import subprocess
import sys

import pytest

from course.classroom import doctor as doctors
from course.classroom import software
from course.classroom.doctor import Report, doctor
from course.classroom.machine import Finding


def test_a_probe_that_fails_is_an_obstacle(monkeypatch):
    def breaks():
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(doctors, "PROBES", {"system": software.system, "ranks": breaks})
    report = doctor()
    assert report[1] == Finding(
        "ranks", "could not be looked at", "RuntimeError: no such thing", True
    )
    assert not report.ready


def test_the_report_is_a_table():
    report = Report([Finding("cores", "8"), Finding("data", "none", "stage it")])
    assert repr(report) == (
        "ok    cores          8\n"
        "note  data           none\n"
        "                     -> stage it\n"
        "This machine is ready."
    )
    report.append(Finding("Python", "3.8", "install it", True))
    assert repr(report).endswith("-> install it\nNot ready: 1 to fix.")


@pytest.mark.parametrize(("data", "status"), [(None, 0), ("nothing-here", 1)])
def test_as_a_command(tmp_path, data, status):
    """The exit status says whether there is an obstacle; the report says which."""
    environment = {k: v for k, v in os.environ.items() if k != "COURSE_DATA"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"COURSE_DATA": str(tmp_path / data)} if data else {}
    command = [sys.executable, "-m", "course.classroom.doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    assert "ok    ranks          two processes have exchanged their numbers" in done.stdout
    assert done.stdout.endswith("1 to fix.\n" if data else "This machine is ready.\n")
