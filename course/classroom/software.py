"""What the doctor looks at in the software: versions against what is required, GPU and backend.

What a probe looks at is an argument with the real thing as its default, so that a test can show
it a bad machine.
"""

import importlib.metadata
import platform
import sys
import tomllib
from pathlib import Path

from course.classroom.machine import Finding

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def system(name=None) -> Finding:
    """Whether ranks can run on this operating system."""
    name = name or platform.system()
    if name == "Windows":
        return Finding("system", name, "work inside WSL: ranks need a Unix", True)
    return Finding("system", f"{name} {platform.machine()}")


def python(version=sys.version_info[:3], pyproject=PYPROJECT) -> Finding:
    """Whether this Python is recent enough."""
    from packaging.specifiers import SpecifierSet

    wanted = declared(pyproject)["requires-python"] if pyproject.exists() else ">=3.11"
    found = ".".join(map(str, version))
    if found in SpecifierSet(wanted):
        return Finding("Python", found)
    return Finding("Python", found, f"install Python {wanted}, then run `make lab` again", True)


def packages(pyproject=PYPROJECT, version=importlib.metadata.version) -> Finding:
    """The package's and its notebooks' requirements, against what is installed."""
    seen, wrong = [], []
    for wanted in requirements(pyproject):
        found = installed(wanted.name, version)
        seen.append(f"{wanted.name} {found}")
        if found == "missing" or not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name}{wanted.specifier} (found: {found})")
    if not wrong:
        return Finding("packages", ", ".join(seen))
    advice = f"run `make lab` again, or install {', '.join(wrong)}"
    return Finding("packages", f"{len(wrong)} of {len(seen)} do not fit", advice, True)


def declared(pyproject: Path) -> dict:
    """What the project says of itself."""
    return tomllib.loads(pyproject.read_text("utf-8"))["project"]


def requirements(pyproject: Path) -> list:
    """What pyproject.toml asks for, or the installed package where that file is not there."""
    from packaging.requirements import Requirement

    if pyproject.exists():
        project = declared(pyproject)
        lines = project["dependencies"] + project["optional-dependencies"]["lab"]
    else:
        lines = importlib.metadata.requires("course") or []
    wanted = [Requirement(line) for line in lines]
    return [w for w in wanted if not w.marker or w.marker.evaluate({"extra": "lab"})]


def installed(name: str, version=importlib.metadata.version) -> str:
    """The version of a package, or that it is missing."""
    try:
        return version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def gpus(count=None, driver=Path("/proc/driver/nvidia/version")) -> Finding:
    """Which GPUs torch sees, and why it sees none where there is a driver."""
    import torch

    count = torch.cuda.device_count() if count is None else count
    if count:
        names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
        return Finding("GPUs", " ".join([str(count), *sorted(names)]))
    if driver.exists():
        advice = "this torch cannot use the GPU: see README, «A GPU box», for TORCH_INDEX"
        return Finding("GPUs", "a driver, but no device", advice)
    return Finding("GPUs", "none: ranks compute on the CPU")


def backend(distributed=None, gpu_count=None) -> Finding:
    """What the ranks' native collectives can use."""
    import torch

    distributed = torch.distributed if distributed is None else distributed
    gpu_count = torch.cuda.device_count() if gpu_count is None else gpu_count
    if not (distributed.is_available() and distributed.is_gloo_available()):
        return Finding("backend", "no gloo", "install a torch that has torch.distributed", True)
    if distributed.is_nccl_available():
        return Finding("backend", "gloo and NCCL")
    advice = (
        "several GPUs without NCCL: they will exchange through the CPU" if gpu_count > 1 else ""
    )
    return Finding("backend", "gloo", advice)
