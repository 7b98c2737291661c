"""The machine and its software in words."""

import sys
from importlib import metadata

from course.classroom import provenance


def test_the_processor_is_called_by_its_name(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Abacus 9 @ 1 Hz\n")
    assert provenance.processor(tmp_path / "cpuinfo") == "Abacus 9 @ 1 Hz"
    assert provenance.processor(tmp_path / "nothing")


def test_cores_are_counted(monkeypatch):
    monkeypatch.setattr(provenance, "processor", lambda: "Abacus 9")
    for count, said in ((1, "1 core (Abacus 9)"), (2, "2 cores (Abacus 9)")):
        monkeypatch.setattr(provenance, "cores", lambda count=count: count)
        assert provenance.machine() == said


def test_versions_are_those_that_run():
    said = provenance.versions()
    assert f"Python {sys.version.split()[0]}, torch {metadata.version('torch')}, course " in said
