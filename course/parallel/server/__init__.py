"""A parameter server in shards: what it does, and what its clients do."""

from course.parallel.server.client import Client
from course.parallel.server.server import serve
