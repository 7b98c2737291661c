"""Plans of a training: chosen within a budget, predicted by formula, simulated, and run."""

from course.cluster.planning.budget import Budget, best_interval, overruns, search
from course.cluster.planning.nodes import A100_ETHERNET, DGX_A100, DGX_H100, RESTING, NodeType
from course.cluster.planning.plan import RESERVE, Plan, check_memory, memory, usable_bytes
from course.cluster.planning.prediction import Assumptions, estimate, step_parts, traffic
from course.cluster.planning.program import PlannedTraining, measured_step, simulated_step
from course.cluster.planning.transformer import Transformer

__all__ = [
    "A100_ETHERNET", "DGX_A100", "DGX_H100", "RESERVE", "RESTING", "Assumptions", "Budget",
    "NodeType", "Plan", "PlannedTraining", "Transformer", "best_interval", "check_memory",
    "estimate", "measured_step", "memory", "overruns", "search", "simulated_step", "step_parts",
    "traffic", "usable_bytes",
]  # fmt: skip
