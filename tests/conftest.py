"""Ranks get the functions of a test as they get those of a notebook cell: by value."""

import cloudpickle
import pytest

from course.worlds import processes

NODES = {"shm": lambda ranks: [0] * ranks, "sockets": range}


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(params=NODES)
def on(request):
    """A world for so many ranks, on one node or on a node each: what moves large messages."""
    return lambda ranks: processes(nodes=tuple(NODES[request.param](ranks)))
