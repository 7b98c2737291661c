"""When does the GPU starve?  When reading a batch takes longer than computing on it."""

import math
from typing import NamedTuple


class Starvation(NamedTuple):
    """Seconds of a step in the long run, the share of them in which the GPU waits for its batch,
    and how many workers would end that."""

    step_s: float
    waiting_share: float
    workers_needed: int


def starvation(read_s: float, compute_s: float, workers: int) -> Starvation:
    """A worker reads and decodes a batch in `read_s`, the GPU computes on it in `compute_s`.

    `workers` finish one every read_s / workers, however far they are ahead: a queue evens out
    what varies, and fills or empties for good otherwise.  Without workers the GPU waits each time.
    Raises ValueError for times or workers that cannot be.
    """
    if not (0 <= read_s < math.inf and 0 < compute_s < math.inf and workers >= 0):
        raise ValueError(
            f"reading takes 0 s or more, computing more than 0 s, and there are 0 workers or more, "
            f"not {read_s} s, {compute_s} s and {workers} workers"
        )
    step_s = max(compute_s, read_s / workers) if workers else read_s + compute_s
    return Starvation(step_s, 1 - compute_s / step_s, max(1, math.ceil(read_s / compute_s)))
