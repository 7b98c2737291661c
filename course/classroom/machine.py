"""What the doctor looks at in the machine: cores, memory, loopback, folders, two ranks at work.

What a probe looks at is an argument with the real thing as its default, so that a test can show
it a bad machine.
"""

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import NamedTuple

from course.classroom.ledger import location

GB = 2**30
BLOCK = 2**16
ENOUGH_GB, LITTLE_GB, SHARED_GB = 3, 1, 0.25  # for four ranks with torch, and a notebook


class Finding(NamedTuple):
    """What a probe saw; `advice` says what to do about it, `obstacle` that the book needs it."""

    what: str
    state: str
    advice: str = ""
    obstacle: bool = False

    @property
    def mark(self) -> str:
        return "fix" if self.obstacle else "note" if self.advice else "ok"


def cores(count=None) -> Finding:
    """Whether there are cores enough for the runs of the book."""
    if count is None:
        from course.worlds.cores import cores as counted

        count = counted()
    if count > 1:
        return Finding("cores", f"{count} for this process")
    advice = "ranks will take turns: every result is right, no time means anything"
    return Finding("cores", "1 for this process", advice)


def memory(meminfo=Path("/proc/meminfo"), groups=Path("/sys/fs/cgroup"), own=None) -> Finding:
    """Memory that is free, in the machine and in the control group that this process is in."""
    if not meminfo.exists():
        return Finding("memory", "not known on this system")
    free_gb = min(free_in_machine(meminfo), *free_in_groups(groups, own)) / GB
    state = f"{free_gb:.1f} GB free"
    if free_gb >= ENOUGH_GB:
        return Finding("memory", state)
    advice = f"close other programs or raise the limit: four ranks want {ENOUGH_GB} GB"
    return Finding("memory", state, advice, free_gb < LITTLE_GB)


def free_in_machine(meminfo: Path) -> float:
    """Bytes that the kernel could hand out."""
    lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def free_in_groups(root: Path, own=None) -> list[float]:
    """Bytes left below each limit that binds this process (cgroup versions 2 and 1)."""
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    left = [float("inf")]
    for line in own.splitlines():
        _, kind, path = line.split(":", 2)
        if kind in ("", "memory"):
            base = root / kind
            folder = base / path.lstrip("/")
            left += [left_in(group) for group in (folder, *folder.parents)
                     if group.is_relative_to(base)]  # fmt: skip
    return left


def left_in(group: Path) -> float:
    """Limit less use of one control group; what it caches of files is free again at need."""
    for limit, use in (("memory.max", "memory.current"),
                       ("memory.limit_in_bytes", "memory.usage_in_bytes")):  # fmt: skip
        if (group / limit).exists() and (most := (group / limit).read_text().strip()) != "max":
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
            return int(most) - int((group / use).read_text()) + cached
    return float("inf")


def shared_memory(folder=Path("/dev/shm"), usage=shutil.disk_usage) -> Finding:
    """What MPI keeps its messages in; other ranks share memory that has no place in a folder."""
    if not folder.exists():
        return Finding("shared memory", f"no {folder} on this system")
    free_gb = usage(folder).free / GB
    state = f"{free_gb:.2g} GB free in {folder}"
    if free_gb >= SHARED_GB:
        return Finding("shared memory", state)
    advice = "only on=mpi() needs it: a container gets more by --shm-size=1g"
    return Finding("shared memory", state, advice)


def loopback(address="127.0.0.1") -> Finding:
    """A byte sent to this machine by itself."""
    try:
        with (
            socket.create_server((address, 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as caller,
            server.accept()[0] as answerer,
        ):
            caller.sendall(b"?")
            answerer.recv(1)
    except OSError as trouble:
        advice = "bring the loopback interface up (`ip link set lo up`) or allow it in the firewall"
        return Finding("loopback", f"{address}: {trouble}", advice, True)
    return Finding("loopback", f"this machine can send to itself ({address})")


def cache(folder=None) -> Finding:
    """Whether pictures can be kept between runs."""
    folder = folder or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(os.path.expanduser(folder))
    if trouble := unwritable(folder):
        return Finding("cache", trouble, "set XDG_CACHE_HOME to a folder that you may write to")
    return Finding("cache", f"{folder} can be written")


def ledger(path=None) -> Finding:
    """Where progress is kept, if it can be."""
    path = path or location()
    if trouble := unwritable(path.parent):
        return Finding("progress", trouble, "set COURSE_PROGRESS to a file that you may write to")
    return Finding("progress", f"kept in {path}")


def unwritable(folder: Path) -> str:
    """Why nothing can be written in a folder, which need not exist yet; nothing if it can.
    A full disk or quota takes a file, but nothing into it."""
    if str(folder).startswith("~"):
        return f"there is no home folder for {folder}"
    nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    try:
        with tempfile.NamedTemporaryFile(dir=nearest) as file:
            file.write(bytes(BLOCK))
            file.flush()
            os.fsync(file.fileno())
            return ""
    except OSError as trouble:
        return f"{folder}: {trouble.strerror}"


def data(folder=None) -> Finding:
    """Whether larger data sets are staged."""
    folder = os.environ.get("COURSE_DATA") if folder is None else folder
    if not folder:
        return Finding("data", "the photographs that come with scikit-image and scikit-learn")
    found = sorted(p.name for p in Path(folder).iterdir()) if Path(folder).is_dir() else []
    if found:
        return Finding("data", f"{folder}: {', '.join(found[:4])}")
    advice = "COURSE_DATA names no folder with data: correct it or unset it"
    return Finding("data", f"nothing in {folder}", advice, True)


def hosts(obstacle=None) -> Finding:
    """An Ethernet cluster in a box, which some notebooks measure where it can be had."""
    if obstacle is None:
        from course.worlds import hosts as world

        obstacle = world.available
    if why := obstacle():
        return Finding("hosts", why, "notebooks show recorded times over Ethernet instead")
    return Finding("hosts", "this machine can imitate a cluster with an Ethernet network")


def slurm(obstacle=None, installed=None) -> Finding:
    """The nodes of a cluster, which on=slurm() asks for."""
    if obstacle is None:
        from course import worlds

        obstacle = worlds.slurm.available
    if not (shutil.which("srun") if installed is None else installed):
        return Finding("Slurm", "none here: this machine is no part of a cluster")
    if why := obstacle():
        advice = "only on=slurm() needs it: on a cluster, ask its administrators"
        return Finding("Slurm", why, advice)
    return Finding("Slurm", "on=slurm() can ask for nodes")


def two_ranks(run=None) -> Finding:
    """Two real processes, one message each way."""
    if run is None:
        from course.worlds import run
    numbers = run(neighbour, 2, timeout=10)
    if numbers == [1, 0]:
        return Finding("ranks", "two processes have exchanged their numbers")
    return Finding("ranks", f"two processes exchanged {numbers}", "tell the authors", True)


def neighbour(comm) -> int:
    """The other rank's number, as that rank says it."""
    import torch

    mine, other = torch.tensor(comm.rank), torch.empty((), dtype=torch.int64)
    comm.exchange(mine, 1 - comm.rank, other, 1 - comm.rank)
    return int(other)
