"""Ranks get the functions of a test as they get those of a notebook cell: by value."""

import os

# Read when torch and numpy are loaded, here, in kernels and in ranks.  A thread that waits for
# others spins, unless it is told to leave its core: most of the time of tests side by side went so.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import cloudpickle  # noqa: E402
import pytest  # noqa: E402

import tests  # noqa: E402
from course.worlds import processes  # noqa: E402
from tests import slurm_box  # noqa: E402
from tests.worlds.slurm.programs import release  # noqa: E402

NODES = {"shm": lambda ranks: [0] * ranks, "sockets": range}

# Those of other test modules, too: to import these, with pytest and all that they need, took a
# rank half a second, fifteen times as long as it lives.
cloudpickle.register_pickle_by_value(tests)

LONG = "tests/test_notebooks.py", "tests/test_site.py", "tests/test_slides.py", "tests/browser/"


def pytest_collection_modifyitems(items):
    """What takes longest comes first, or a core would wait for it at the end; then what needs a
    Slurm, together, since every process of pytest that has some of it makes a Slurm of its own."""
    items.sort(key=lambda item: (not item.nodeid.startswith(LONG), not needs_a_slurm(item)))


def needs_a_slurm(item) -> bool:
    return item.name.endswith("slurm]") or "box" in item.fixturenames


@pytest.fixture(params=NODES)
def on(request):
    """A world for so many ranks, on one node or on a node each: what moves large messages."""
    return lambda ranks: processes(nodes=tuple(NODES[request.param](ranks)))


@pytest.fixture(scope="session")
def box():
    """A real Slurm of four nodes, for all tests of this process."""
    if why := slurm_box.missing():
        pytest.skip(why)
    with slurm_box.SlurmBox() as made:
        yield made


@pytest.fixture(scope="module")
def at_box(box):
    """This process is on the login node of the box."""
    with pytest.MonkeyPatch.context() as patch:
        # Unbuffered: whoever prints does so in small pieces, among those of other nodes.
        for name, value in (box.environment | {"PYTHONUNBUFFERED": "1"}).items():
            patch.setenv(name, value)
        yield
        release()
