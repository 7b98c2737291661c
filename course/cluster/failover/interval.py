"""How often to save: every save costs time, and every failure costs what was not yet saved.

`young` and `daly` say the best interval between saves, `optimal` the exact one of Daly's model,
whose time `expected_time_s` is.  An interval is the work between two saves, in seconds, as are a
save, a restart, and the mean time between failures (MTBF) of the whole job.
Source: Young 1974; Daly 2006, «A higher order estimate of the optimum checkpoint interval».
"""

import math

from course.comm.counts import required_count

LARGEST_EXPONENT = 700.0  # of what a float can hold
HALVINGS = 50  # one more would round to 1


def system_mtbf(node_mtbf_s: float, nodes: int) -> float:
    """The mean time between failures, in seconds, of so many nodes that fail by themselves."""
    require_above_zero(node_mtbf_s=node_mtbf_s)
    return node_mtbf_s / required_count(nodes, "the number of nodes")


def young(save_s: float, mtbf_s: float) -> float:
    """sqrt(2 save mtbf): where saves cost as much as what is lost, to first order."""
    require_above_zero(save_s=save_s, mtbf_s=mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s)


def daly_lower_order(save_s: float, mtbf_s: float, restart_s: float = 0.0) -> float:
    """sqrt(2 save (mtbf + restart)) - save.  Source: Daly 2003."""
    require_above_zero(save_s=save_s, mtbf_s=mtbf_s)
    _require_not_negative(restart_s=restart_s)
    return math.sqrt(2 * save_s * (mtbf_s + restart_s)) - save_s


def daly(save_s: float, mtbf_s: float) -> float:
    """The best interval to higher order; no longer than the MTBF where saves are very long."""
    require_above_zero(save_s=save_s, mtbf_s=mtbf_s)
    x = save_s / (2 * mtbf_s)
    if x >= 1:
        return mtbf_s
    return young(save_s, mtbf_s) * (1 + math.sqrt(x) / 3 + x / 9) - save_s


def optimal(save_s: float, mtbf_s: float) -> float:
    """The interval at which `expected_time_s` is least, by halving; a restart does not change it.

    With u = interval / mtbf the slope is zero where log(1 - u) + u = -save / mtbf.
    """
    require_above_zero(save_s=save_s, mtbf_s=mtbf_s)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        u = (low + high) / 2
        if math.log1p(-u) + u > -save_s / mtbf_s:
            low = u
        else:
            high = u
    return low * mtbf_s


def expected_time_s(work_s, interval_s, save_s, mtbf_s, restart_s=0.0) -> float:
    """Seconds that `work_s` of work take on average, if failures come at any moment alike, in saves
    and restarts too; inf if that is more than a float holds.

    M exp(R / M) (exp((interval + save) / M) - 1) work / interval, with M mtbf and R restart.
    """
    require_above_zero(interval_s=interval_s, mtbf_s=mtbf_s)
    _require_not_negative(work_s=work_s, save_s=save_s, restart_s=restart_s)
    exponent = (interval_s + save_s + restart_s) / mtbf_s
    if exponent > LARGEST_EXPONENT:
        return math.inf
    segment = mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + save_s) / mtbf_s)
    return segment * work_s / interval_s


def waste(interval_s, save_s, mtbf_s, restart_s=0.0) -> float:
    """The part of `expected_time_s` that is not work: saves, restarts, and what is done again."""
    return 1 - 1 / expected_time_s(1.0, interval_s, save_s, mtbf_s, restart_s)


def first_order_waste(interval_s, save_s, mtbf_s, restart_s=0.0) -> float:
    """save / interval + interval / (2 mtbf) + restart / mtbf, where all of these are small."""
    require_above_zero(interval_s=interval_s, mtbf_s=mtbf_s)
    _require_not_negative(save_s=save_s, restart_s=restart_s)
    return save_s / interval_s + (interval_s / 2 + restart_s) / mtbf_s


def require_above_zero(**seconds):
    """Raises ValueError, which names it, for one that is no finite number above 0."""
    for name, value in seconds.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is a number of seconds above 0, not {value}")


def _require_not_negative(**seconds):
    for name, value in seconds.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is a number of seconds, 0 or more, not {value}")
