"""A job that fails, saves and begins again, in simulated time: what its hours went into."""

import heapq
import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from course.cluster.failover.interval import require_above_zero
from course.comm.counts import required_count

MOST_FAILURES = 1_000_000  # after which a job will not come to its end


class Job(NamedTuple):
    """Seconds of work, of saves, of what failures undid and of restarts; how many failures."""

    work_s: float
    saving_s: float
    lost_s: float
    restarting_s: float
    failures: int

    @property
    def time_s(self) -> float:
        return self.work_s + self.saving_s + self.lost_s + self.restarting_s

    @property
    def waste(self) -> float:
        """The part of the time that was not work."""
        return 1 - self.work_s / self.time_s


def exponential_gaps(mtbf_s: float, seed: int) -> Iterator[float]:
    """Seconds from each failure of a job to its next: at any moment as likely as at any other."""
    require_above_zero(mtbf_s=mtbf_s)
    generator = random.Random(seed)
    while True:
        yield generator.expovariate(1 / mtbf_s)


def node_gaps(node_mtbf_s: float, nodes: int, seed: int) -> Iterator[float]:
    """Seconds from each failure of a job to its next, if any of its nodes ends it: each has a clock
    of its own, and begins again at once."""
    require_above_zero(node_mtbf_s=node_mtbf_s)
    required_count(nodes, "the number of nodes")
    generator, now = random.Random(seed), 0.0
    clocks = [generator.expovariate(1 / node_mtbf_s) for _ in range(nodes)]
    heapq.heapify(clocks)
    while True:
        first = clocks[0]
        yield first - now
        now = first
        heapq.heapreplace(clocks, first + generator.expovariate(1 / node_mtbf_s))


def simulate(work_s, interval_s, save_s, restart_s, gaps: Iterable[float]) -> Job:
    """Do `work_s` of work, saved after every `interval_s` and at its end, through failures that
    come after `gaps` [seconds, each from the failure before; no more when they end].  An interval
    of inf is one save, at the end.

    A failure undoes what was not saved, a save under way too; a restart may fail as well.
    Raises ValueError for times that cannot be, ArithmeticError after a million failures.
    """
    _check(work_s, interval_s, save_s, restart_s)
    interval_s = min(interval_s, work_s)
    gaps, segments, saved = _checked(gaps), _segments(work_s, interval_s), 0
    lost, restarting, failures, left = 0.0, 0.0, 0, next(gaps, math.inf)
    while saved < segments:
        needed = min(interval_s, work_s - saved * interval_s) + save_s
        if left >= needed:
            saved, left = saved + 1, left - needed
            continue
        lost += left
        tries, spent, left = _restart(restart_s, gaps)
        failures, restarting = failures + tries, restarting + spent
        if failures > MOST_FAILURES:
            raise ArithmeticError(f"{failures} failures, and {saved} of {segments} intervals done")
    return Job(float(work_s), segments * save_s, lost, restarting, failures)


def _check(work_s, interval_s, save_s, restart_s):
    finite = max(work_s, save_s, restart_s) < math.inf
    if not (finite and work_s > 0 and interval_s > 0 and save_s >= 0 and restart_s >= 0):
        raise ValueError(
            "work and interval are seconds above 0, save and restart 0 or more, not "
            f"{work_s}, {interval_s}, {save_s} and {restart_s}"
        )


def _checked(gaps):
    for gap_s in gaps:
        if not gap_s >= 0:
            raise ValueError(f"it is 0 seconds or more from a failure to the next, not {gap_s}")
        yield gap_s


def _segments(work_s, interval_s) -> int:
    return max(1, math.ceil(work_s / interval_s * (1 - 1e-12)))  # 1.1 / 0.1 is more than 11


def _restart(restart_s, gaps):
    """How many failures until a restart was through, the seconds it took, those to the next."""
    tries, spent = 1, 0.0
    while (left := next(gaps, math.inf)) < restart_s and tries <= MOST_FAILURES:
        tries, spent = tries + 1, spent + left
    return tries, spent + restart_s, left - restart_s
