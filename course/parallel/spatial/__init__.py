"""Layers that look at windows, on arrays that are cut along their spatial axes."""

from course.parallel.spatial import convolution, untied  # noqa: F401  they say what torch's functions are
