"""Pipeline parallel training: every rank has some layers, and micro-batches pass through all."""

from course.parallel.pipeline.pipeline import Pipeline
from course.parallel.pipeline.schedule import INPUT, Schedule
from course.parallel.pipeline.schedules import (
    gpipe,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)
from course.parallel.pipeline.timing import simulate
from course.parallel.pipeline.weight_stashing import PipeDream

__all__ = ["INPUT", "PipeDream", "Pipeline", "Schedule", "gpipe", "interleaved",
           "one_forward_one_backward", "simulate", "zero_bubble"]  # fmt: skip
