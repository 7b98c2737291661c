"""pyproject.toml, constraints.txt, environment.yml and what is installed say the same."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec, VersionSpec
from rattler import Version as CondaVersion

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
CONDA_HAS = ("lab", "test")  # a site and a hub are made by `make site` and `make hub`
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}

# Of the interpreter, not of the book; and what the CUDA build of torch brings on some systems.
NOT_OURS = re.compile("course|pip|wheel|triton|cuda-|nvidia-|colorama$|pywin|appnope$")


def required(*extras):
    """What the book needs, with these extras or with all."""
    optional = PROJECT["optional-dependencies"]
    lines = sum((optional[extra] for extra in extras or optional), PROJECT["dependencies"])
    return [Requirement(line) for line in lines]


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pins}


def conda():
    """Ranges by name, as conda's own grammar reads them."""
    specs = [str(MatchSpec(line, strict=True)) for line in CONDA if isinstance(line, str)]
    return {spec.partition(" ")[0]: spec.partition(" ")[2] for spec in specs}


def conda_name(requirement):
    return CONDA_NAMES.get(requirement.name, requirement.name)


def test_conda_lists_the_same_packages_and_the_book_itself():
    assert sorted(conda()) == sorted(["pip", "python", *map(conda_name, required(*CONDA_HAS))])
    assert CONDA[-1] == {"pip": ["-e ."]}


def test_conda_wants_the_same_python():
    assert SpecifierSet(conda()["python"]) == SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("requirement", required(*CONDA_HAS), ids=str)
def test_conda_has_the_same_range(requirement):
    assert SpecifierSet(conda()[conda_name(requirement)]) == requirement.specifier


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_the_pinned_version_lies_in_the_range(requirement):
    assert pinned()[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.parametrize("requirement", required(*CONDA_HAS), ids=str)
def test_the_pinned_version_lies_in_the_range_of_conda(requirement):
    version = CondaVersion(str(pinned()[canonicalize_name(requirement.name)]))
    assert VersionSpec(conda()[conda_name(requirement)]).matches(version)


def test_only_torch_of_all_pins_is_named_without_the_build_it_is_installed_as():
    assert str(pinned()["torch"]) == "2.13.0"
    assert not [version for version in pinned().values() if version.local]


in_venv = pytest.mark.skipif(
    Path(sys.prefix) != ROOT / ".venv", reason="only .venv promises these versions"
)


@in_venv
def test_every_pin_admits_the_oldest_python_there_may_be():
    # soupsieve 4.1 wants 3.11.5 and cannot be installed with Debian 12's 3.11.2
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    wanted = {d.name: d.metadata["Requires-Python"] or "" for d in metadata.distributions()}
    assert not {name: spec for name, spec in wanted.items() if oldest not in SpecifierSet(spec)}


@in_venv
def test_everything_installed_is_pinned():
    found = {canonicalize_name(d.name): Version(d.version).public for d in metadata.distributions()}
    ours = {name: version for name, version in found.items() if not NOT_OURS.match(name)}
    assert ours == {name: str(pinned().get(name, "not pinned")) for name in ours}
