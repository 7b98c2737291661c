"""What something is measured on, in words: the machine, and the versions of what runs on it."""

import importlib.metadata
import platform
from pathlib import Path

from course.worlds.cores import cores


def machine() -> str:
    """How many cores this process may use, and of what: "2 cores (AMD EPYC)"."""
    count = cores()
    return f"{count} core{'s' * (count > 1)} ({processor()})"


def processor(cpuinfo=Path("/proc/cpuinfo")) -> str:
    """The processor's model, as the system calls it."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> str:
    """Of the system, of Python, of PyTorch and of this package."""
    packages = (f"{name} {importlib.metadata.version(name)}" for name in ("torch", "course"))
    system = f"{platform.system()} {platform.release()}"
    return ", ".join([system, f"Python {platform.python_version()}", *packages])
