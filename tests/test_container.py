"""The image for clusters: what goes into it, how it is made, and how it starts.

No image is made: the steps of Containerfile are run in a folder that stands for /opt/course.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import test_makefile

ROOT = Path(__file__).parents[1]
TEXT = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text())
STEPS = re.findall(r"^([A-Z]+) (.*)$", TEXT, re.MULTILINE)
machine = test_makefile.machine  # a project with this Makefile, and a script that stands for Python
IGNORED = (ROOT / ".dockerignore").read_text().split()


def values(instruction):
    return [value for name, value in STEPS if name == instruction]


def clean(machine, **more):
    """The environment in which a container starts: nothing of this one."""
    return {"PATH": f"{machine / 'bin'}:/usr/bin:/bin", "HOME": str(machine), **more}


@pytest.fixture
def image(machine):
    """The made-up project after the step of Containerfile that installs the book."""
    (step,) = [value for value in values("RUN") if value.startswith("make ")]
    environment = clean(machine, TORCH_INDEX="https://index.invalid")
    subprocess.run(step, shell=True, check=True, cwd=machine / "project", env=environment)
    return machine


def asked(image):
    lines = (image / "project" / "log").read_text().splitlines()
    return [line for line in lines if line != "--version"]


def test_the_book_is_installed_from_the_index_that_was_named(image):
    _, install, *_ = asked(image)
    options = "--constraint constraints.txt --extra-index-url https://index.invalid --editable"
    assert install == f"-m pip install {options} .[lab]"


def test_the_image_starts_where_its_user_is_and_installs_nothing(image, tmp_path):
    here, (entry,) = tmp_path / "a user's  folder", values("ENTRYPOINT")
    here.mkdir()
    (image / "project" / "log").unlink()
    command = [part.replace("/opt/course", str(image / "project")) for part in json.loads(entry)]
    subprocess.run(
        [*command, "--no-browser", "--port=8899"], cwd=here, env=clean(image), check=True
    )
    copy, lab = asked(image)
    assert copy == f"-m course.classroom.workbook {here}/workbook"
    assert f"--ServerApp.ip=127.0.0.1 --ServerApp.root_dir={here}/workbook " in lab
    assert lab.endswith(" --no-browser --port=8899")


def test_nothing_that_make_installs_or_makes_here_goes_into_the_image():
    here = {
        line.strip("/") for line in (ROOT / ".gitignore").read_text().split("\n") if line[:1] == "/"
    }
    assert here - {".mypy_cache"} <= set(IGNORED)
    assert ".git" in IGNORED and "**/__pycache__" in IGNORED


def test_every_path_that_is_copied_is_the_book_itself():
    assert values("COPY") == [". ."]
    assert values("WORKDIR") == ["/opt/course", "/work"]


def test_the_base_has_a_python_that_the_tests_pass_with():
    (base,) = [value.removeprefix("BASE=") for value in values("ARG") if value.startswith("BASE=")]
    assert base.endswith("/debian:bookworm-slim")  # its Python is 3.11
    assert values("FROM") == ["${BASE}"]
    assert "python3-venv" in values("RUN")[0] and " make " in values("RUN")[0]


def test_readme_names_the_arguments_that_there_are():
    readme = (ROOT / "README.md").read_text()
    named = {*re.findall(r"--build-arg (\w+)=", readme)}
    assert named and named <= {value.partition("=")[0] for value in values("ARG")}
    assert os.path.basename("Containerfile") in readme
