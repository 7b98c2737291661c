"""Every misuse of the generated set is told in a sentence that names ranks and calls, in every
world; no rank hangs, dies of it or gets a wrong value."""

import re
from importlib.util import find_spec

import pytest
import torch

from course.worlds import RankError, hosts, mpi, processes, run, slurm
from tests.worlds.misuses import MISUSES, RANKS, act
from tests.worlds.simulator.clusters import switched

REAL = {
    "shm": processes(),
    "sockets": processes(nodes=range(RANKS)),
    "hosts": hosts(RANKS),
    "mpi": mpi(),
}
WORLDS = REAL | {"slurm": slurm(nodes=2), "imagined": switched(RANKS)}
MISSING = {"hosts": hosts.available(), "mpi": None if find_spec("mpi4py") else "needs mpi4py"}
BY_NAME = {misuse.name: misuse for misuse in MISUSES}
STOPPED = "nothing, for the run is over: others have failed"
SHORT_S = 0.5  # a time-out, where nothing else can tell


def in_world(world, goes_on):
    """The misuses of a world after which its ranks can go on, or those after which they cannot."""
    return [m for m in MISUSES if (not m.only or world in m.only) and m.goes_on == goes_on]


def one_by_one():
    """(world, misuse): all in the imagined cluster; those that end a run in a real world, too."""
    imagined = in_world("imagined", True) + in_world("imagined", False)
    pairs = [("imagined", misuse) for misuse in imagined]
    for number, misuse in enumerate(m for m in MISUSES if not m.goes_on):
        worlds = misuse.only or tuple(REAL)
        pairs.append((worlds[number % len(worlds)], misuse))
    return pairs


def present(world):
    if MISSING.get(world):
        pytest.skip(MISSING[world])
    return WORLDS[world]


def outcome(misuse, on):
    """What each rank heard in a run of its own."""
    try:
        run(act, RANKS, misuse.program, on=on, timeout=SHORT_S if misuse.waits else 20)
    except RankError as error:
        first = f"rank {error.rank} failed: {error.failures[error.rank]}"
        assert str(error).startswith(first)
        return error.failures | dict.fromkeys(error.running, STOPPED)
    return {}


def wrongs(misuse, heard) -> list[str]:
    """What is not as its record says."""
    found = []
    for rank in range(RANKS):
        said, pattern = heard.get(rank, "nothing"), misuse.hears.get(rank, "nothing")
        if said != STOPPED and not re.fullmatch(pattern, said, re.DOTALL):
            found.append(f"{misuse.name}: rank {rank} hears {said!r}, not {pattern!r}")
    return found


def test_there_are_many_and_no_two_are_the_same():
    assert len(MISUSES) == len(BY_NAME) > 300
    assert len({misuse.program for misuse in MISUSES}) > 300


@pytest.mark.parametrize(("world", "misuse"), one_by_one(), ids=lambda x: getattr(x, "name", x))
def test_a_misuse_is_told_to_every_rank(world, misuse):
    assert wrongs(misuse, outcome(misuse, present(world))) == []


def go_through(comm, names):
    """What this rank hears of each misuse, after which all go on together."""
    heard = []
    for number, name in enumerate(names):
        try:
            act(comm, BY_NAME[name].program)
            heard.append("nothing")
        except Exception as error:
            heard.append(f"{type(error).__name__}: {error}")
        comm.barrier()
        out, right = torch.zeros(3), (comm.rank + 1) % comm.size
        mine, left = torch.full((3,), number + comm.rank / 4), (comm.rank - 1) % comm.size
        comm.exchange(mine, right, out, left)
        assert out.tolist() == [number + left / 4] * 3, f"after {name}"
    return heard


@pytest.mark.parametrize("world", WORLDS)
def test_after_a_misuse_all_can_go_on(world, request):
    if world == "slurm":
        request.getfixturevalue("at_box")
    misuses = in_world(world, True)
    heard = run(go_through, RANKS, [misuse.name for misuse in misuses], on=present(world))
    for number, misuse in enumerate(misuses):
        assert wrongs(misuse, {rank: said[number] for rank, said in enumerate(heard)}) == []
