"""Mixture of experts: every token is seen by few of them, wherever they are."""

from course.parallel.experts.gating import NoisyTopKGate
from course.parallel.experts.mixture import Mixture, MixtureOfExperts

__all__ = ["Mixture", "MixtureOfExperts", "NoisyTopKGate"]
