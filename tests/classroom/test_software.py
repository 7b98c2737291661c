"""Every probe of the software is shown a bad machine, and says what to do about it."""

from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

import pytest
import torch

from course.classroom import software
from course.classroom.machine import Finding

PYPROJECT = """
[project]
requires-python = ">=3.11"
dependencies = ["torch>=2.6,<3"]
[project.optional-dependencies]
lab = ["jupyterlab>=4,<5", "ipywidgets>=8"]
test = ["pytest>=99"]
"""


@pytest.fixture
def pyproject(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(PYPROJECT)
    return path


def test_windows_needs_wsl():
    assert software.system("Windows") == Finding(
        "system", "Windows", "work inside WSL: ranks need a Unix", True
    )
    assert software.system("Linux").mark == "ok"


def test_an_old_python(pyproject):
    found = software.python((3, 10, 2), pyproject)
    assert (found.mark, found.state) == ("fix", "3.10.2")
    assert found.advice == "install Python >=3.11, then run `make lab` again"
    assert software.python((3, 12, 0), pyproject) == Finding("Python", "3.12.0")
    assert software.python((3, 10, 0), pyproject.with_name("none")).obstacle


def versions(**known):
    def version(name):
        if name not in known:
            raise PackageNotFoundError(name)
        return known[name]

    return version


def test_packages_against_their_ranges(pyproject):
    right = versions(torch="2.13.0+cpu", jupyterlab="4.6.6", ipywidgets="8.1.9")
    assert software.packages(pyproject, right) == Finding(
        "packages", "torch 2.13.0+cpu, jupyterlab 4.6.6, ipywidgets 8.1.9"
    )
    wrong = versions(torch="1.9", jupyterlab="4.6.6")
    found = software.packages(pyproject, wrong)
    assert (found.mark, found.state) == ("fix", "2 of 3 do not fit")
    assert "torch<3,>=2.6 (found: 1.9), ipywidgets>=8 (found: missing)" in found.advice


def test_requirements_of_an_installed_course(pyproject, monkeypatch):
    lines = ["torch>=2.6", 'jupyterlab>=4; extra == "lab"', 'pytest>=99; extra == "test"']
    monkeypatch.setattr(software.importlib.metadata, "requires", lambda name: lines)
    wanted = software.requirements(pyproject.with_name("none"))
    assert [requirement.name for requirement in wanted] == ["torch", "jupyterlab"]


def test_a_gpu_that_torch_cannot_use(tmp_path):
    driver = tmp_path / "version"
    assert software.gpus(0, driver) == Finding("GPUs", "none: ranks compute on the CPU")
    driver.write_text("NVRM")
    assert "TORCH_INDEX" in software.gpus(0, driver).advice


def torch_with(*, distributed=True, gloo=True, nccl=False):
    return SimpleNamespace(
        is_available=lambda: distributed,
        is_gloo_available=lambda: gloo,
        is_nccl_available=lambda: nccl,
    )


def test_backends():
    assert software.backend(torch_with(nccl=True), 2).state == "gloo and NCCL"
    assert software.backend(torch_with(), 1).mark == "ok"
    assert "through the CPU" in software.backend(torch_with(), 2).advice
    for broken in (torch_with(distributed=False), torch_with(gloo=False)):
        assert software.backend(broken, 0).mark == "fix"


def test_gpus_are_counted_and_named(tmp_path, monkeypatch):
    names = ["Tesla T4", "Tesla T4", "A100"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    assert software.gpus(driver=tmp_path / "version") == Finding("GPUs", "3 A100 Tesla T4")


def test_this_software_is_looked_at_where_nothing_else_is_shown():
    """The defaults are the real thing: this Python, these packages, the project's own file."""
    assert software.declared(software.PYPROJECT)["name"] == "course"
    assert software.python().mark == software.packages().mark == "ok"
    assert f"torch {version('torch')}" in software.packages().state
