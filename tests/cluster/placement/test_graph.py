"""Graphs are data: operations with what they take, weigh and give, and they compute the module."""

import pytest
import torch
from torch import nn

from course.cluster.placement import traced
from course.cluster.placement.graph import filled
from tests.cluster.placement.nets import SMALL, Random, small


def one_by_one(graph, *inputs):
    values = graph.named_inputs(inputs)
    for operation in graph.operations.values():
        values[operation.answer] = operation.value(graph.module, values)
    return filled(graph.output, graph.module, values)


@pytest.mark.parametrize("name", SMALL)
def test_operations_one_by_one_are_the_module(name):
    module, x = small(name)
    assert torch.equal(one_by_one(traced(module, x), x), module(x))


@pytest.mark.parametrize("seed", range(8))
def test_so_are_those_of_random_networks(seed):
    module, x = Random(seed), torch.randn(3, 4)
    last, others = one_by_one(traced(module, x), x)
    wanted, all_wanted = module(x)
    assert torch.equal(last, wanted) and len(others) == len(all_wanted)
    assert all(torch.equal(*pair) for pair in zip(others, all_wanted))


def test_a_module_that_changes_later_is_not_the_one_that_was_traced():
    module = nn.Linear(3, 2)
    graph, x, before = traced(nn.Sequential(module), torch.ones(1, 3)), torch.ones(1, 3), None
    before = module(x)
    nn.init.zeros_(module.weight)
    assert torch.equal(one_by_one(graph, x), before)


def test_bytes_and_takers():
    module, x = small("branches")
    graph = traced(module, x)
    assert graph.operations["cat"].out_bytes == module(x).nbytes
    assert {name: len(takers) for name, takers in graph.takers.items()} == {
        "one_0": 1, "three_0_0": 1, "three_1_0": 1, "five_0_0": 1, "five_1_0": 1,
        "pooled_0": 1, "pooled_1_0": 1, "cat": 0,
    }  # fmt: skip
    assert graph.takers["three_0_0"] == ["three_1_0"]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(3, 3) for _ in range(4))
        self.c.weight, self.d.weight, self.d.bias = self.a.weight, self.b.weight, self.c.bias

    def forward(self, x):
        return self.d(self.c(self.b(self.a(x))))


def test_operations_that_share_a_weight_are_one_group_over_any_number_of_steps():
    graph = traced(Tied(), torch.ones(1, 3))
    assert [sorted(group) for group in graph.groups()] == [["a", "b", "c", "d"]]
    assert graph.operations["c"].weights == {"a.weight": 36, "c.bias": 12}
    apart = traced(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.ones(1, 3))
    assert len(apart.groups()) == 2


def test_other_inputs_are_refused():
    module, x = small("chain")
    graph = traced(module, x)
    with pytest.raises(ValueError, match="takes 1 inputs, not 2"):
        graph.named_inputs((x, x))
    with pytest.raises(ValueError, match=r"traced with input\w* of float64 \[2, 3, 32, 32\], and "
                                         r"it is float32 \[2, 3, 32, 32\]"):  # fmt: skip
        graph.named_inputs((x.float(),))
