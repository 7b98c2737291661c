"""A sequence that no rank holds alone, and attention over all of it."""

from course.parallel.sequence.cut import SequenceCut, contiguous, zigzag
from course.parallel.sequence.ring_attention import ring_attention

__all__ = ["SequenceCut", "contiguous", "ring_attention", "zigzag"]
