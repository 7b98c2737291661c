"""Strong and weak scaling of real programs over any world: `python -m course.cluster.scaling`."""

from course.cluster.scaling.laws import amdahl, gustafson
from course.cluster.scaling.measure import measure, simulate
from course.cluster.scaling.programs import PROGRAMS
from course.cluster.scaling.results import Point, Results, load

__all__ = ["PROGRAMS", "Point", "Results", "amdahl", "simulate", "gustafson", "load", "measure"]
