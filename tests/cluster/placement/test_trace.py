"""Tracing finds the operations, their work and what joins them; what has no graph is refused."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_1G, GTX_680
from course.cluster.placement import traced
from course.cluster.placement.costs import Costs
from course.cluster.placement.graph import rooms
from course.worlds import run, simulated
from tests.cluster.placement.nets import SMALL, small


@pytest.mark.parametrize("name", SMALL)
def test_flops_are_those_that_torch_counts(name):
    module, x = small(name)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(x)
    assert traced(module, x).flops == counter.get_total_flops() > 0


def forward(comm, module, x):
    module(x)


@pytest.mark.parametrize("name", SMALL)
def test_kernels_take_one_device_as_long_as_the_imagined_cluster_says(name):
    module, x = small(name)
    world = simulated(machine := one_switch(1, GTX_680, ETHERNET_1G))
    run(forward, 1, module.eval().requires_grad_(False), x, on=world)
    costs = Costs(graph := traced(module, x), machine)
    seconds = sum(costs.seconds(name, "gpu 0") for name in graph.operations)
    assert seconds == pytest.approx(world.report.seconds, rel=1e-12)


def calls(graph):
    return {name: [call.name for call in each.calls] for name, each in graph.operations.items()}


def test_what_only_goes_on_with_an_answer_is_one_operation_with_it():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    graph = traced(net.eval(), torch.ones(2, 3, 8, 8))
    assert calls(graph) == {"_0": ["_0", "_1", "_2"], "_3": ["_3"]}
    assert {*graph.operations["_0"].weights} >= {"0.weight", "1.weight", "1.running_mean"}


class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x, y=None):
        a = self.first(x)
        unused = a.exp()  # noqa: F841
        b = a.relu().view(a.size(0), -1)
        left, right = b.chunk(2, dim=-1)
        order = torch.arange(a.size(1), device=x.device)
        return {"sum": torch.cat((right, left), 1)[:, : x.shape[1]] * self.scale + order, "a": a}


def test_what_has_two_takers_or_is_an_answer_stands_alone():
    graph = traced(Fork(), torch.ones(2, 4))
    assert calls(graph)["first"] == ["first"]
    assert calls(graph)["relu"] == ["relu", "view", "chunk"]
    assert calls(graph)["cat"] == ["cat", "getitem_3", "mul"]
    assert graph.operations["add"].takes == ("cat", "arange")
    assert graph.operations["cat"].weights == {"scale": 16}
    assert [str(room) for room in rooms(graph.operations["relu"].gives)] == ["float32 [2, 2]"] * 2


class ByName(nn.Module):
    """What a call takes is given by its name."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.table = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = torch.add(self.first(x), other=self.second(x))
        return nn.functional.linear(y, weight=self.table.weight)


def test_what_is_given_by_name_is_taken_and_weighs():
    graph = traced(ByName(), torch.ones(2, 4))
    assert graph.operations["add"].takes == ("first", "second")
    assert graph.operations["linear"].weights == {"table.weight": 64}
    assert repr(graph) == "<graph of 4 operations, 192 flop>"


def test_flops_of_an_operation_are_those_of_all_its_products():
    net, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = net

        def forward(self, x):
            return self.attend(x, x, x)[0]

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(x, x, x)
    graph = traced(Attend(), x)
    assert [*graph.operations] == ["attend"] and graph.flops == counter.get_total_flops()


def test_shapes_are_constants_and_nothing_unused_is_kept():
    graph = traced(Fork(), torch.ones(2, 4))
    assert not {"size", "exp"} & {*graph.operations}
    view = graph.operations["relu"].calls[1]
    assert view.args[1:] == (2, -1)


def test_tracing_leaves_the_module_as_it_was():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: x.clone() for name, x in net.state_dict().items()}
    traced(net, torch.ones(2, 4))
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    assert not net[0].weight.is_meta


class Way(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Item(nn.Module):
    def forward(self, x):
        return x * x.sum().item()


class InPlace(nn.Module):
    def forward(self, x):
        y = x + 1
        y.add_(x)
        return y


class Any(nn.Module):
    def forward(self, *all_inputs):
        return all_inputs[0]


class Drawn(nn.Module):
    def forward(self, x):
        return torch.rand_like(x)


class Nothing(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize(("net", "sentence"), [
    (Way(), "Way has no graph before it runs: .*control flow"),
    (Item(), "item cannot be traced with this example"),
    (InPlace(), "add_ changes in place what it takes"),
    (nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), "_1 changes in place"),
    (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), "_1 draws random numbers"),
    (nn.Sequential(nn.Linear(5, 4)), "_0 cannot be traced with this example: "),
    (Any(), r"Any takes any number of inputs, \*all_inputs"),
    (Drawn(), "rand_like draws random numbers"),
    (nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), 1),
     "TransformerEncoder has no graph before it runs"),
    (torch.relu, "a module is traced, not <built-in"),
    (Nothing(), "Nothing takes 1 inputs and makes 0 calls"),
])  # fmt: skip
def test_what_has_no_graph_is_refused(net, sentence):
    with pytest.raises(ValueError, match=sentence):
        traced(net, torch.ones(2, 4))


def test_an_example_with_other_inputs_is_refused():
    with pytest.raises(ValueError, match="takes 1 inputs and makes 1 calls, and the example has 2"):
        traced(nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4), torch.ones(1))
    with pytest.raises(ValueError, match="Fork also takes x, and the example has 0 inputs"):
        traced(Fork())
