"""A placed graph in time: rules kept, and equal to what the imagined cluster does."""

import pytest
import torch
from torch import nn

from course.cluster.hardware import ETHERNET_10G, FDR, NVLINK_P100, Cable
from course.cluster.placement import execute, heft, placed_by_hand, schedule, traced
from course.cluster.placement.costs import Costs
from course.worlds import simulated
from tests.cluster.placement.machines import pair, unequal
from tests.cluster.placement.nets import SMALL, Random, small

CABLE = Cable("by hand", 1e-3, 1e6, "test")


class Fork(nn.Module):
    """One answer that three others take."""

    def __init__(self):
        super().__init__()
        self.first, self.one, self.two, self.three = (nn.Linear(100, 100) for _ in range(4))

    def forward(self, x):
        x = self.first(x)
        return self.one(x), self.two(x), self.three(x)


def test_times_worked_out_by_hand():
    graph, machine = traced(Fork(), torch.ones(10, 100)), pair(CABLE)
    placement = placed_by_hand(graph, {"one": "gpu 1", "two": "gpu 1", "first": "gpu 0"})
    placed = schedule(graph, placement, machine)
    own = Costs(graph, machine).seconds("first", "gpu 0")
    there = own + 2e-3 + 4000 / 1e6
    assert [span[:2] for span in placed.row("gpu 1")] == [("one", "gpu 1"), ("two", "gpu 1")]
    assert placed.row("gpu 1")[1][2:] == pytest.approx((there + own, there + 2 * own))
    assert placed.row("gpu 0")[1][2:] == pytest.approx((own, 2 * own))
    assert [each[:5] for each in placed.transfers] == [("first", "gpu 0", "gpu 1", 1, 4000)]
    assert placed.transfers[0][5:] == pytest.approx((own + 2e-3, there))
    assert placed.seconds == pytest.approx(there + 2 * own)
    assert repr(placed).startswith("<schedule of 4 operations and 1 transfers on 2 devices: 0.00")
    assert placed.devices == ["gpu 0", "gpu 1"]
    assert (placed.sent_bytes, placed.sent_messages) == (4000, 1)


def test_a_link_carries_one_transfer_at_a_time():
    graph, machine = traced(Fork(), torch.ones(10, 100)), pair(CABLE, 4)
    heads = {"first": "gpu 0", "one": "gpu 1", "two": "gpu 2", "three": "gpu 3"}
    placed = schedule(graph, placed_by_hand(graph, heads), machine)
    starts = [each.start for each in placed.transfers]
    assert [each.target for each in placed.transfers] == ["gpu 1", "gpu 2", "gpu 3"]
    assert [start - starts[0] for start in starts] == pytest.approx([0, 4e-3, 8e-3])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("cable", [FDR, NVLINK_P100, ETHERNET_10G])
def test_the_imagined_cluster_takes_as_long_where_no_transfers_meet(name, cable):
    module, x = small(name)
    graph = traced(module, x)
    operations = [*graph.operations]
    for machine in (pair(cable), unequal(cable)):
        cut = len(operations) // 2
        heads = {operations[0]: "gpu 0", operations[cut]: "gpu 1"}
        for placement in (heft(graph, machine), placed_by_hand(graph, heads)):
            placed = schedule(graph, placement, machine)
            world = simulated(machine, placement=placed.devices)
            execute(placed, x, on=world)
            if not meet(placed):
                assert world.report.seconds == pytest.approx(placed.seconds, rel=1e-9)


def meet(placed):
    """Whether a transfer had to wait for its links."""
    ends = {span.operation: span.end for span in placed.spans}
    latencies = {round(each.start - ends[each.operation], 12) for each in placed.transfers}
    return len(latencies) > 1


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_keep_the_rules_on_any_placement(seed):
    graph, machine = traced(Random(seed, 9), torch.ones(3, 4)), pair(FDR, 3)
    devices = torch.randint(3, (len(graph.groups()),), generator=torch.manual_seed(seed)).tolist()
    placement = {name: f"gpu {device}" for group, device in zip(graph.groups(), devices)
                 for name in group}  # fmt: skip
    placed = schedule(graph, placement, machine)
    spans = {span.operation: span for span in placed.spans}
    came = {(each.operation, each.target): each for each in placed.transfers}
    assert {*spans} == {*graph.operations} and len(came) == len(placed.transfers)
    for name, operation in graph.operations.items():
        for source in operation.takes:
            if placement[source] == placement[name]:
                assert spans[source].end <= spans[name].start
            else:
                transfer = came[source, placement[name]]
                assert spans[source].end < transfer.start and transfer.end <= spans[name].start
    for device in placed.devices:
        row = placed.row(device)
        assert all(one.end <= other.start for one, other in zip(row, row[1:]))
