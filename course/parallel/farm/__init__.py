"""Tasks that need no neighbours: a farm of ranks, and what is built on it."""

from course.parallel.farm.ensemble import Ensemble
from course.parallel.farm.farm import Outcome, farm, manage
from course.parallel.farm.halving import halving_plan, successive_halving

__all__ = ["Ensemble", "Outcome", "farm", "halving_plan", "manage", "successive_halving"]
