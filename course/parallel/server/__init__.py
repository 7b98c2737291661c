"""A parameter server in shards: what it does, and what its clients do."""

from course.parallel.server.client import Client
from course.parallel.server.server import serve
from course.parallel.server.shards import Plan, agree, shard_plan, step_bytes
from course.parallel.server.snapshots import Snapshots
from course.parallel.server.staleness import (
    Applied,
    Consistency,
    Pulled,
    ServerLog,
    asynchronous,
    bounded,
    synchronous,
)
from course.parallel.server.updates import adagrad, sgd, slower_if_stale
