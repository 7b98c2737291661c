"""Three stages of filters, pools and norms, trained without a label."""

from course.learning.nine_layers.network import (
    NineLayers,
    fine_tune,
    fine_tuning_gradient,
    joint_objective,
    objective,
    train_greedily,
    train_stage,
)
from course.learning.nine_layers.plan import BILLION, NORMED, Geometry, Norm, Plan, sizes
