"""Arrays cut over ranks, and what the functions of torch are for them."""

from course.parallel.array import dropout, losses, pointwise, shapes  # noqa: F401  known of all
from course.parallel.array.boxes import Box
from course.parallel.array.distributed_array import DistributedArray, part, scatter
from course.parallel.array.layout import Layout, cut_at, evenly

__all__ = ["Box", "DistributedArray", "Layout", "cut_at", "evenly", "part", "scatter"]

import course.parallel.spatial  # noqa: E402, F401  and what looks through windows
