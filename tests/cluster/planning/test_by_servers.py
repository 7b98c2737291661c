"""Sums server by server: those of one sum over all, by all cards of a server."""

import pytest
import torch

from course.cluster.fabric import adapter_each
from course.cluster.hardware import H100, NDR, NVLINK_H100
from course.cluster.planning.by_servers import ByServers, groups_by_server
from course.collectives import all_reduce
from course.worlds import processes, run, simulated

NODES = [(0, 0), (0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1), (0, 0, 0, 1, 1, 1)]


def sum_and_share(comm, length):
    """The largest differences from the plain sum, and of what all parts give together."""
    torch.manual_seed(comm.rank)
    sums, worst = ByServers(comm, length), []
    for _ in range(2):
        mine, plain = torch.randn(length, dtype=torch.float64), None
        plain = mine.clone()
        all_reduce(comm, plain)
        part = sums.reduce_scatter(mine)
        assert part.shape == sums.own(mine).shape
        worst += [(part - sums.own(plain)).abs(), (sums.all_gather(part) - plain).abs()]
    return max((each.max().item() for each in worst if len(each)), default=0.0)


@pytest.mark.parametrize("length", [0, 1, 5, 24, 1001])
@pytest.mark.parametrize("nodes", NODES, ids=str)
def test_parts_are_those_of_the_sum_over_all_ranks(nodes, length):
    world = processes(nodes=nodes, oversubscribe=True)
    assert max(run(sum_and_share, len(nodes), length, on=world)) < 1e-12


def sizes(comm):
    return [group.size for group in groups_by_server(comm)]


def test_levels_are_servers_where_all_have_as_many_ranks():
    for nodes, expected in zip(NODES, ([2], [2], [2, 2], [2, 2], [4], [3, 2])):
        world = processes(nodes=nodes, oversubscribe=True)
        assert run(sizes, len(nodes), on=world) == [expected] * len(nodes)


def sent_between_servers(comm, length):
    sums = ByServers(comm, length)
    before = comm.meter.sent_bytes
    x = torch.zeros(length, device=comm.device)
    sums.all_gather(sums.reduce_scatter(x))
    return comm.meter.sent_bytes - before


def test_bytes_of_a_ring_and_all_cards_reach_out():
    world = simulated(adapter_each(2, 4, H100, NVLINK_H100, NDR), device="meta")
    sent = run(sent_between_servers, 8, 80_000, on=world)
    assert sent == [2 * 4 * 80_000 * 7 // 8] * 8
    cables = [use for use in world.report.links if "network" in use.link]
    assert len(cables) == 2 * 8 and {use.bytes for use in cables} == {2 * 4 * 80_000 // 8}
