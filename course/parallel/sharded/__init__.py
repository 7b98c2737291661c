"""Sharded data parallel training: every rank keeps its part of what all ranks have alike."""

from course.parallel.sharded.checkpoints import load_sharded, load_whole, sharded_state, whole_state
from course.parallel.sharded.sharded import Sharded
