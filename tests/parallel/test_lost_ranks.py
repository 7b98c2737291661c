"""A rank that is gone at any message of a training ends all the others, and is named."""

import functools
import itertools
import os
import signal

import pytest
import torch

from course.comm.communicator import Communicator
from course.parallel.pipeline import one_forward_one_backward
from course.parallel.sequence import ring_attention, zigzag
from course.parallel.spatial.spatial_parallel import SpatialParallel
from course.parallel.tensor import MLP
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn
from tests.parallel.experts.drawn import Case
from tests.parallel.experts.drawn import on_ranks as with_experts
from tests.parallel.hybrid.test_weird_trick import on_ranks as in_rounds
from tests.parallel.pipeline.nets import steps_of
from tests.parallel.sharded import programs
from tests.parallel.spatial.networks import UNet
from tests.parallel.tensor import serial

RANKS = 3


def descended(net, call):
    """Two steps of a net whose output is `call(step)`."""
    for step in range(2):
        torch.manual_seed(step)
        net.zero_grad()
        call(step).square().sum().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad


def tensor(comm):
    whole, cuts = serial.made(serial.MLP, 3, 5, 3), [(0, 1, 2, 4), None]
    net, x = MLP(comm, whole.up, whole.down), drawn(4, 3)
    rows = x[cuts[0][comm.rank] : cuts[0][comm.rank + 1]]
    descended(net, lambda step: net((rows, x)[step], cuts[step]))


def spatial(comm):
    net = SpatialParallel(UNet().double(), comm, (comm.size, 1))
    descended(net, lambda step: net(drawn(1, 3, 12, 6, seed=step)))


def sequence(comm):
    cut = zigzag(12, comm.size)
    net = torch.nn.Linear(4, 12).double()
    x = cut.part(drawn(12, 4), comm.rank)
    descended(net, lambda step: ring_attention(comm, *net(x).chunk(3, -1), cut, causal=True))


PROGRAMS = {
    "tensor": tensor,
    "sharded": lambda comm: programs.on_shards(comm, programs.plain, "momentum", 2, stage=3),
    "pipeline": lambda comm: steps_of(comm, one_forward_one_backward(comm.size, 4), 8, uses=2),
    "experts": lambda comm: with_experts(comm, [Case((3, 3, 3), experts=4, uses=2)]),
    "hybrid": lambda comm: in_rounds(comm, "c", (4, 3, 2), often=True, steps=2),
    "spatial": spatial,
    "sequence": sequence,
}
ENDS = {
    "was ended by SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exited with status 3": lambda: os._exit(3),
}


def counted(comm, program, last=None, end=None):
    """How many messages this rank has begun to send; rank 1 ends before its message `last`."""
    numbers, begin, count = itertools.count(1), Communicator.isend, 0

    def isend(self, *args, **options):
        nonlocal count
        count = next(numbers)
        if comm.rank == 1 and count == last:
            end()
        return begin(self, *args, **options)

    Communicator.isend = isend
    program(comm)
    return count


@functools.cache
def messages(name):
    return run(counted, RANKS, PROGRAMS[name])[1]


@pytest.mark.parametrize("share, end, checked", [
    (0.4, "exited with status 3", False), (0.9, "was ended by SIGKILL", True),
])  # fmt: skip
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rank_that_is_gone_in_a_step_ends_the_others_and_is_named(name, share, end, checked):
    last = 1 + round(share * (messages(name) - 1))
    with pytest.raises(RankError, match=f"rank 1 {end}") as caught:
        run(counted, RANKS, PROGRAMS[name], last, ENDS[end], checked=checked, timeout=10)
    failed = caught.value
    assert failed.rank == 1 and not failed.running
    assert all(said.startswith("PeerLost: rank ") for said in failed.failures.values())
