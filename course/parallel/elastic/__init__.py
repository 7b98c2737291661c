"""Elastic averaging: workers on a spring, and the centre they are tied to."""

from course.parallel.elastic.elastic_averaging import ElasticAveraging
