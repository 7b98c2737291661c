"""Layers that look at windows, on arrays that are cut along their spatial axes."""

from course.parallel.spatial import convolution, norms, padding, pooling, untied
