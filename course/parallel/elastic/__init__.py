"""Elastic averaging: workers on a spring, and the centre they are tied to."""

from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.elastic.elastic_averaging import ElasticAveraging
from course.parallel.elastic.served_centre import ServedCentre, overhead_s, serve_centre
from course.parallel.elastic.stability import (
    centre_deviation,
    centre_losses,
    largest_alpha,
    mean_system,
    stable,
)
