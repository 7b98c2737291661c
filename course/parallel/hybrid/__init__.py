"""One network cut two ways: grids of communicators, who sums which gradient, one weird trick."""

from course.parallel.hybrid.gradients import GradientGroup, SummedGradients, gradient_plan
from course.parallel.hybrid.grid import Grid

__all__ = ["GradientGroup", "Grid", "SummedGradients", "gradient_plan"]
