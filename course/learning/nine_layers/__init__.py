"""Three stages of filters, pools and norms, trained without a label."""

from course.learning.nine_layers.network import (
    NineLayers,
    Stage,
    fine_tuning_gradient,
    joint_objective,
    objective,
    orthonormal,
    train_greedily,
    train_stage,
    unit,
)
from course.learning.nine_layers.plan import (
    A16,
    A16H,
    A24,
    BETWEEN,
    BILLION,
    EVEN,
    NORMED,
    PLAIN,
    WIDE,
    Geometry,
    Norm,
    Plan,
    Size,
    sizes,
)
