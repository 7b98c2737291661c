"""What frameworks do for you: one training in many ways, and what each of them did when."""

from course.cluster.frameworks.measure import Training, statements, train_in
from course.cluster.frameworks.ways import WAYS

__all__ = ["WAYS", "Training", "statements", "train_in"]
