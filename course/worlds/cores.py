"""How many cores this process may use."""

import os
import pathlib

CGROUPS = pathlib.Path("/sys/fs/cgroup")


def cores(cgroups: pathlib.Path = CGROUPS) -> int:
    """The least of what affinity, the cgroup's quota and Slurm allow, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, int(min([allowed, *_of_slurm(), *quotas(cgroups)])))


def threads(ranks: int) -> int:
    """Of each rank: what the user's OMP_NUM_THREADS says, else its share of the cores.

    No more than there are cores: MKL's threads wait in loops, and a product that takes milliseconds
    never ended on 4 threads of 2 cores.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    asked = int(wanted) if wanted.isdecimal() else 0
    return min(asked, cores()) or max(1, cores() // ranks)


def _of_slurm() -> list:
    """[the cores that a job or its step has on this node], which not every site enforces."""
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return [int(given)] if given.isdecimal() else []


def quotas(cgroups: pathlib.Path):
    """Cores' worth of time that each enclosing cgroup grants (versions 2 and 1)."""
    for controllers, own in _groups():
        base = cgroups / ("cpu" if controllers else "")
        for folder in [base / own, *(base / own).parents]:
            if folder.is_relative_to(base):
                yield from _quota(folder / "cpu.max")
                yield from _quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _groups():
    """(controllers, path) of each cgroup of this process that may grant less time than there is;
    of version 2 there is one, and it names no controllers."""
    try:
        own = pathlib.Path("/proc/self/cgroup").read_text()
    except OSError:
        own = ""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            yield controllers, path.lstrip("/")


def _quota(*files):
    try:
        quota, period = " ".join(file.read_text().strip() for file in files).split()
        if int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):  # no such file; "max": no limit
        return


def required_cores(ranks: int, world):
    """Raises ValueError for many more ranks than cores, unless `world` has `oversubscribe`."""
    most = max(4, 2 * cores())
    if ranks > most and not world.oversubscribe:
        raise ValueError(
            f"{ranks} ranks on {cores()} cores would mostly wait for one another: at most "
            f"{most} run here, unless you pass oversubscribe=True to {type(world).__name__}()"
        )
