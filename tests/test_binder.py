"""Binder makes a machine for the book as repo2docker reads the repository; no docker is run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("repo2docker", reason="jupyter-repo2docker is not installed here")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """What git knows of the book, in a folder of its own."""
    copy = tmp_path_factory.mktemp("repository")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def plan(repository):
    """The Dockerfile that repo2docker writes for the book, and what it says meanwhile."""
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", "."]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


INSTALL = 'pip install --no-cache-dir -r "binder/requirements.txt"'


def test_the_folder_binder_says_which_python_and_what_is_installed(plan):
    assert "Building conda environment for python=3.11\n" in plan
    assert plan.count("pip install") == plan.count(INSTALL) == 1
    assert "env update" not in plan  # environment.yml is for conda users


def test_the_whole_book_is_there_before_it_is_installed(plan):
    assert plan.index("COPY --chown=0:0 src/ ${REPO_DIR}/\n") < plan.index(INSTALL)


def test_what_runs_last_makes_the_learners_copy(plan, repository, tmp_path):
    assert "chmod +x binder/postBuild" in plan and "./binder/postBuild" in plan
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(repository)}
    subprocess.run(
        [repository / "binder" / "postBuild"], cwd=repository, env=environment, check=True
    )
    originals = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (repository / "workbook").glob("*.ipynb")} == originals


def test_pip_can_read_what_it_shall_install(repository):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--requirement", "binder/requirements.txt"]
    alone = os.environ | {"PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(command, cwd=repository, text=True, capture_output=True, env=alone)
    assert done.returncode == 0, done.stderr
    assert "Would install course-" in done.stdout


def test_torch_comes_from_where_readme_says(repository):
    wanted = (repository / "binder" / "requirements.txt").read_text()
    readme = (ROOT / "README.md").read_text()
    (index,) = re.findall(r"--extra-index-url (\S+)", wanted)
    assert f"make lab TORCH_INDEX={index}\n" in readme
