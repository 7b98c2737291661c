"""A parameter server in shards: what it does, and what its clients do."""

from course.parallel.server.client import Client
from course.parallel.server.server import Push, Tag, Want, serve
from course.parallel.server.shards import Plan, cut, join, step_bytes
from course.parallel.server.snapshots import Snapshots
from course.parallel.server.staleness import (
    Applied,
    Pulled,
    Rule,
    Served,
    asynchronous,
    bounded,
    synchronous,
)
from course.parallel.server.updates import adagrad, sgd, slower_if_stale
