"""`.ci/run` on a machine made up for the test: what it installs, and that the tests then run."""

import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
USABLE_PYTHON = "exit 0"
REPORT = 'echo "make $* with data in [$COURSE_DATA]"'


@pytest.fixture
def machine(tmp_path):
    """A folder with `.ci/run`, and a PATH on which nothing is but what that script stands on."""
    (tmp_path / "project" / ".ci").mkdir(parents=True)
    shutil.copy(RUN, tmp_path / "project" / ".ci")
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    put(tmp_path, "id", "echo 0")
    put(tmp_path, "apt-get", 'echo "apt-get $*"')
    put(tmp_path, "make", REPORT)
    return tmp_path


def put(machine, name, does):
    script = machine / "bin" / name
    script.write_text(f"#!{shutil.which('sh')}\n{does}\n")
    script.chmod(0o755)


def put_everything(machine):
    for name in ("chromium", "chromedriver", "npm", "dpkg-query"):
        put(machine, name, "exit 0")
    put(machine, "python3", USABLE_PYTHON)


def run(machine):
    """Lines of output and status of `bash .ci/run`, called from elsewhere."""
    done = subprocess.run(["bash", machine / "project" / ".ci" / "run"], cwd="/", text=True,
                          env={"PATH": str(machine / "bin")}, capture_output=True)  # fmt: skip
    return (done.stderr + done.stdout).splitlines(), done.returncode


def test_where_nothing_is_missing_nothing_is_installed(machine):
    put_everything(machine)
    put(machine, "apt-get", "exit 1")
    assert run(machine) == (["make test with data in []"], 0)


def test_a_bare_machine_gets_what_it_lacks_and_then_the_tests(machine):
    said, status = run(machine)
    packages = "python3-venv chromium chromium-driver npm iproute2 python3-simgrid slurm-wlm munge"
    assert f"apt-get install --yes --no-install-recommends {packages}" in said
    assert (said[-1], status) == ("make test with data in []", 0)


def test_only_what_is_missing_is_installed(machine):
    put_everything(machine)
    put(machine, "python3", "exit 1")
    assert "apt-get install --yes --no-install-recommends python3-venv" in run(machine)[0]


def test_a_later_python_will_do(machine):
    put_everything(machine)
    put(machine, "python3", "exit 1")
    put(machine, "python3.13", USABLE_PYTHON)
    assert run(machine) == (["make test with data in []"], 0)


@pytest.mark.parametrize(
    "name, does, said",
    [
        ("apt-get", "exit 100", "apt-get could not supply all of: chromium; going on without."),
        ("id", "echo 1000", "Not here, and not installable by this user: chromium; going on"),
    ],
)
def test_what_cannot_be_installed_is_named_and_the_tests_run(machine, name, does, said):
    put_everything(machine)
    (machine / "bin" / "chromium").unlink()
    put(machine, name, does)
    lines, status = run(machine)
    assert said in "\n".join(lines)
    assert (lines[-1], status) == ("make test with data in []", 0)


def test_staged_data_beside_the_checkout_are_found(machine):
    put_everything(machine)
    (machine / "shared" / "data").mkdir(parents=True)
    assert run(machine)[0] == [f"make test with data in [{machine / 'shared' / 'data'}]"]


def test_failing_tests_fail_the_run(machine):
    put_everything(machine)
    put(machine, "make", "exit 3")
    assert run(machine)[1] == 3
