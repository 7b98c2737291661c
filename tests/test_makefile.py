"""`make` on a machine made up for the test: which commands it gives, in which order, and when none.

A script stands for Python: it writes down what it is asked to do, and makes a `.venv` with itself.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
case "$*" in
    "-c "*ensurepip*) exit {usable} ;;
    "--version") echo "Python 3.x" ;;
    "-m venv --clear .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
echo "$*" >> log
{then}
"""


@pytest.fixture
def machine(tmp_path):
    """A folder with the project's Makefile, and nothing else that the project has."""
    home = tmp_path / "project"
    (tmp_path / "bin").mkdir()
    home.mkdir()
    shutil.copy(ROOT / "Makefile", home)
    for name in ("pyproject.toml", "constraints.txt"):
        (home / name).touch()
    put_python(tmp_path)
    return tmp_path


def put_python(machine, name="python3", usable=0, then=""):
    script = machine / "bin" / name
    script.write_text(PYTHON.format(usable=usable, then=then))
    script.chmod(0o755)


def make(machine, *arguments, folder="project"):
    """What make says, whether it succeeded, and what Python was asked to do."""
    log = machine / folder / "log"
    log.unlink(missing_ok=True)
    without = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "TORCH_INDEX", "PYTHON", "ARGS")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    environment["PATH"] = f"{machine / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(["make", *arguments], cwd=machine / folder, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    asked = log.read_text().splitlines() if log.exists() else []
    return (
        done.stdout + done.stderr,
        done.returncode,
        [line for line in asked if line != "--version"],
    )


def is_install(line):
    return line.startswith("-m pip install")


def test_help_names_every_command(machine):
    said, _, asked = make(machine)
    commands = "help", "lab", "check", "test", "workbook", "notebooks", "record", "slides"
    for command in (*commands, "site", "bench", "kernel", "hub", "hub-test"):
        assert f"make {command} " in said
    assert asked == []


def test_lab_makes_installs_copies_and_opens(machine):
    _, status, asked = make(machine, "lab", "ARGS=--no-browser --port=9999")
    venv, install, copy, lab = asked
    assert status == 0
    assert venv == "-m venv --clear .venv"
    assert install == "-m pip install --constraint constraints.txt --editable .[lab]"
    assert copy == "-m course.classroom.workbook workbook"
    assert lab.startswith("-m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir=workbook ")
    assert lab.endswith(" --no-browser --port=9999") and "token" not in lab
    assert " --KernelManager.transport=ipc " in lab


def test_the_second_time_nothing_is_installed(machine):
    make(machine, "lab")
    assert not any(map(is_install, make(machine, "lab")[2]))
    assert list(map(is_install, make(machine, "test")[2])).count(True) == 1
    assert not any(map(is_install, make(machine, "test")[2]))
    assert not any(map(is_install, make(machine, "lab")[2]))


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_new_requirements_are_installed_into_the_venv_there_is(machine, name):
    make(machine, "lab")
    later = (machine / "project" / ".venv" / ".lab").stat().st_mtime + 5
    os.utime(machine / "project" / name, (later, later))
    first, second = make(machine, "lab")[2][:2]
    assert is_install(first) and second == "-m course.classroom.workbook workbook"


def test_an_installation_that_broke_off_is_tried_again(machine):
    put_python(machine, then='case "$*" in "-m pip"*) exit 1 ;; esac')
    said, status, asked = make(machine, "lab")
    assert status != 0 and "broke off" in said and is_install(asked[-1])
    put_python(machine)
    shutil.copy(machine / "bin" / "python3", machine / "project" / ".venv" / "bin" / "python")
    assert list(map(is_install, make(machine, "lab")[2])).count(True) == 1


@pytest.mark.parametrize("folder", ["two  spaces", "it's a $(x) #1; ä", "a space at the end "])
def test_in_a_folder_of_any_name_nothing_is_made_twice(machine, folder):
    (machine / "project").rename(machine / folder)
    assert make(machine, "lab", folder=folder)[2][0] == "-m venv --clear .venv"
    assert len(make(machine, "lab", folder=folder)[2]) == 2


def test_a_project_that_was_moved_gets_a_venv_of_its_own(machine):
    make(machine, "lab")
    (machine / "project").rename(machine / "elsewhere")
    assert make(machine, "lab", folder="elsewhere")[2][0] == "-m venv --clear .venv"
    assert not any(map(is_install, make(machine, "lab", folder="elsewhere")[2]))


def test_torch_may_come_from_another_index_and_goes_on_to(machine):
    index = "https://index.invalid/cpu"
    wanted = f"-m pip install --constraint constraints.txt --extra-index-url {index} --editable "
    make(machine, "lab")
    venv, install, *_ = make(machine, "lab", f"TORCH_INDEX={index}")[2]
    assert (venv, install) == ("-m venv --clear .venv", wanted + ".[lab]")
    assert not any(map(is_install, make(machine, "lab")[2]))
    assert wanted + ".[site,test]" in make(machine, "test")[2]


def test_without_a_recent_python_a_sentence_says_what_to_do(machine):
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        put_python(machine, name, usable=1)
    said, status, asked = make(machine, "lab")
    assert status != 0 and asked == []
    assert "No Python 3.11 or later with venv was found (tried: python3 python3.13" in said
    assert "apt install python3-venv" in said and "PYTHON=" in said
    assert not (machine / "project" / ".venv").exists()


def test_another_python_is_found_or_named(machine):
    put_python(machine, usable=1)
    put_python(machine, "python3.12")
    assert make(machine, "workbook")[1] == 0
    put_python(machine, "python3.12", usable=1)
    put_python(machine, "mine")
    shutil.rmtree(machine / "project" / ".venv")
    assert make(machine, "workbook", "PYTHON=mine")[1] == 0


def test_the_quick_check_runs_the_tests_of_what_changed(machine):
    put_python(machine, then='case "$1" in .ci/affected.py) echo "tests of $2" ;; esac')
    checks = make(machine, "check", "SINCE=main", "ARGS=-x")[2][-5:]
    assert checks == ["-m ruff format --check .", "-m ruff check .", "-m mypy",
                      ".ci/affected.py main", "-m pytest tests of main -x"]  # fmt: skip


def test_where_git_does_not_know_what_changed_the_quick_check_fails(machine):
    put_python(machine, then='case "$1" in .ci/affected.py) exit 1 ;; esac')
    _, status, asked = make(machine, "check")
    assert status != 0 and asked[-1] == ".ci/affected.py"


def test_the_site_is_made_with_what_it_needs_and_no_tests(machine):
    installs = [line for line in make(machine, "site")[2] if is_install(line)]
    assert [line.rpartition(" ")[2] for line in installs] == [".[lab]", ".[site]"]
    assert make(machine, "site", "ARGS=elsewhere")[2] == ["site/build.py elsewhere"]


def test_a_kernel_for_another_jupyterlab_comes_with_advice(machine):
    assert "start your JupyterLab with --KernelManager.transport=ipc" in make(machine, "kernel")[0]


def put_npm(machine):
    """An npm that says what it is asked, and where; and what the hub asks of it."""
    script = machine / "bin" / "npm"
    script.write_text('#!/bin/sh\nmkdir -p node_modules; echo "npm $1 in $(basename "$PWD")"\n')
    script.chmod(0o755)
    (machine / "project" / "hub").mkdir()
    (machine / "project" / "hub" / "package.json").touch()


def test_a_hub_is_installed_with_its_proxy_and_started(machine):
    put_npm(machine)
    said, status, asked = make(machine, "hub", "ARGS=--debug")
    assert status == 0 and said.count("npm install in hub") == 1
    assert asked[-2].endswith("--editable .[hub]")
    assert asked[-1] == "-m jupyterhub -f hub/jupyterhub_config.py --debug"
    said, _, asked = make(machine, "hub-test")
    assert "npm install" not in said and asked[-1] == "-m pytest tests/hub"
    assert [line.split()[-1] for line in asked if is_install(line)] == [".[site,test]"]


def test_all_tests_are_those_of_the_hub_too_where_there_is_npm(machine):
    put_npm(machine)
    said, _, asked = make(machine, "test")
    assert "npm install in hub" in said and any(line.endswith(".[hub]") for line in asked)


def test_without_npm_a_sentence_says_what_to_do(machine):
    put_npm(machine)
    without = machine / "without"  # what make needs, and no npm
    without.mkdir()
    for name in ("sh", "awk", "cat", "pwd", "test", "touch", "cp", "mkdir", "make"):
        (without / name).symlink_to(shutil.which(name))
    (machine / "bin" / "npm").unlink()
    environment = {"PATH": f"{machine / 'bin'}:{without}"}
    done = subprocess.run(["make", "hub"], cwd=machine / "project", env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert (
        done.returncode and "there is no npm here (Debian, Ubuntu: apt install npm)" in done.stderr
    )


def test_what_must_pass_is_run_in_this_order(machine):
    checks = make(machine, "test", "SIDE_BY_SIDE=5")[2][-5:]
    assert checks == ["-m ruff format --check .", "-m ruff check .", "-m mypy",
                      "-m pytest -n 5 --dist worksteal --ignore=tests/hub",
                      "-m pytest tests/hub"]  # fmt: skip
    some = make(machine, "test", "ARGS=tests/comm")[2][-1]
    assert some.endswith("--ignore=tests/hub tests/comm")
