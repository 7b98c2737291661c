"""Every way of training, unmodified, in every world: the ranks end with the same bits."""

import pytest
import torch

from course.parallel.data.compression import OneBit, PowerSGD, TopK
from course.parallel.data.data_parallel import DataParallel
from course.parallel.gossip.topology import metropolis, ring_graph
from course.parallel.server.shards import shard_plan
from course.worlds import hosts, mpi, run, slurm
from tests.parallel import workers
from tests.parallel.data import test_data_parallel as test_data
from tests.parallel.elastic import test_elastic_averaging as test_elastic
from tests.parallel.gossip import test_gossip
from tests.parallel.tensor import test_linear
from tests.worlds.netns.test_world import WHY_NOT
from tests.worlds.simulator.clusters import switched

RANKS = 3
WORLDS = {
    "hosts": lambda: hosts(RANKS, rate="1gbit"),
    "mpi": mpi,
    "slurm": lambda: slurm(nodes=2),
    "imagined": lambda: switched(RANKS),
}


def compressed(comm):
    """The parameters after six steps, with each way to send fewer bytes."""
    ends = []
    for hook in (OneBit(), TopK(0.2, momentum=0.0), PowerSGD()):
        net = DataParallel(workers.net(), comm, hook=hook)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(workers.STEPS):
            x, y = (part.tensor_split(comm.size)[comm.rank] for part in workers.rows(step))
            optimizer.zero_grad()
            workers.loss(net, x, y).backward()
            optimizer.step()
        ends.append(workers.vector(net.module))
    return torch.stack(ends)


def served(comm):
    """The shard of a server, or what a client was given."""
    answer = workers.train(comm, shard_plan(comm.size, 1, workers.ELEMENTS), workers.downpour)
    return answer if torch.is_tensor(answer) else answer.values


PROGRAMS = {
    "data parallel": (test_data.on_many, "momentum", True, 1e-4, "ring"),
    "compressed": (compressed,),
    "server": (served,),
    "elastic": (test_elastic.synchronously, [{}, {"server": 1}], {"alpha": 0.1, "tau": 3}),
    "tensor": (test_linear.descended,),
    "gossip": (test_gossip.decentralised, [metropolis(ring_graph(RANKS))], 5),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_ends_with_the_same_bits_in_every_world(program, world, request):
    if world == "hosts" and WHY_NOT:
        pytest.skip(WHY_NOT)
    if world == "slurm":
        request.getfixturevalue("at_box")
    fn, *args = PROGRAMS[program]
    here, there = run(fn, RANKS, *args), run(fn, RANKS, *args, on=WORLDS[world]())
    for mine, theirs in zip(here, there, strict=True):
        if torch.is_tensor(mine):
            mine, theirs = [mine], [theirs]
        for a, b in zip(mine, theirs, strict=True):
            assert torch.equal(a, b)
