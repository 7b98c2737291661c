"""Collectives built from send and recv alone, and what they cost."""

from course.collectives.all_reduce import all_reduce
from course.collectives.basic import (
    all_gather,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter",
    "scatter",
]  # fmt: skip
