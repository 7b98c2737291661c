"""Data parallel training: every rank has the model, its own samples, and the mean gradient."""

from course.parallel.data.data_parallel import DataParallel, average_buffers, average_weights
