"""On a machine that many share, a run waits until others leave it room.

COURSE_CROWDED=4      the machine is crowded when more than four programs a core want to compute
"""

import os
import secrets
import time
from pathlib import Path

VARIABLE = "COURSE_CROWDED"  # unset, as it is outside of hubs: no run waits
LOADAVG = Path("/proc/loadavg")  # 0.20 0.18 0.12 running/all newest: of all users
PATIENCE_S = 60.0  # then a run begins all the same
LOOKS_S = 0.2, 0.3, 0.5, 0.8, 1.3  # between two looks, by chance: not all who wait begin at once


def wait_for_room():
    """Return once the machine is not crowded, or after PATIENCE_S; whoever waits is told so.

    Raises ValueError where COURSE_CROWDED is no positive number.
    """
    if not (wanted := os.environ.get(VARIABLE)):
        return
    most, until, told = _required(wanted) * os.cpu_count(), time.monotonic() + PATIENCE_S, False
    while (computing := _computing()) > most and time.monotonic() < until:
        if not told:
            where = f"{computing} programs want the {os.cpu_count()} cores of this machine"
            print(f"{where}: the run waits for room, {PATIENCE_S:g} s at most.", flush=True)
            told = True
        time.sleep(secrets.choice(LOOKS_S))  # a learner's seeds stay as they are


def _required(wanted: str) -> float:
    try:
        if (most := float(wanted)) > 0:
            return most
    except ValueError:
        pass
    raise ValueError(f"{VARIABLE} is a positive number of programs a core, not {wanted!r}")


def _computing() -> int:
    """The programs that have a core or wait for one; 0 where the system does not tell."""
    try:
        return int(LOADAVG.read_text().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):
        return 0
