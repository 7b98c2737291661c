"""Tasks that need no neighbours: a farm of ranks, and what is built on it."""

from course.parallel.farm.committee import best_of_all, train_committee
from course.parallel.farm.ensemble import Ensemble
from course.parallel.farm.farm import Outcome, farm, manage
from course.parallel.farm.halving import halving_plan, successive_halving

__all__ = [
    "Ensemble", "Outcome", "best_of_all", "farm", "halving_plan", "manage", "successive_halving",
    "train_committee",
]  # fmt: skip
