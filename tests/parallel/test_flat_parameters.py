"""A model's weights are one tensor and the model at once."""

import pytest
import torch
from torch import nn

from course.parallel.flat_parameters import FlatParameters, broadcast_module
from course.worlds import run


class Tied(nn.Module):
    """One weight used twice, a frozen one, a batch norm with its buffers."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.one, self.frozen, self.norm = nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.same = self.one
        self.frozen.requires_grad_(False)
        self.norm.running_mean.normal_()

    def forward(self, x):
        return self.norm(self.frozen(self.same(self.one(x))))


def test_what_happens_to_the_tensor_happens_to_the_model():
    net = Tied()
    weights = FlatParameters(net)
    assert weights.flat.numel() == 2 * 2 + 2 + 2 + 2
    weights.flat.copy_(torch.arange(10.0))
    assert net.one.weight.tolist() == [[0, 1], [2, 3]] and net.norm.bias.tolist() == [8, 9]
    with torch.no_grad():
        net.one.bias.fill_(7)
    assert weights.flat[4:6].tolist() == [7, 7]


def test_gradients_are_added_and_none_counts_as_zero():
    net = Tied()
    weights, out = FlatParameters(net), torch.ones(10)
    net.one.weight.grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    weights.add_gradient(out, -2)
    assert out.tolist() == [-1, -3, -5, -7, 1, 1, 1, 1, 1, 1]


def recast(net):
    net.double().float()


def assigned(net):
    net.load_state_dict({name: x.clone() for name, x in net.state_dict().items()}, assign=True)


def another_layer(net):
    net.norm = nn.BatchNorm1d(2)


def unfrozen(net):
    net.frozen.requires_grad_(True)


@pytest.mark.parametrize("change, name", [
    (nn.Module.double, "one.weight"), (recast, "one.weight"), (assigned, "one.weight"),
    (another_layer, "norm.weight"), (unfrozen, "frozen.weight"),
    (lambda net: net.to("meta"), "one.weight"),
    (lambda net: delattr(net, "norm"), "a parameter that the module no longer has"),
])  # fmt: skip
def test_what_is_no_longer_part_of_the_tensor_is_told(change, name):
    """Weights that a step moved elsewhere: the model's stayed where they were, without a word."""
    net = Tied()
    weights = FlatParameters(net)
    weights.required_in_place(3)
    change(net)
    with pytest.raises(RuntimeError) as caught:
        weights.required_in_place(3)
    assert str(caught.value) == (
        f"rank 3: {name} is not trained: cast, move, assign or unfreeze parameters before their "
        "module is given away, not afterwards"
    )


@pytest.mark.parametrize("change", [
    nn.Module.share_memory, nn.Module.eval, lambda net: net.one.requires_grad_(False),
    lambda net: net.to(torch.float32), lambda net: net.load_state_dict(Tied(seed=1).state_dict()),
    lambda net: net.to(memory_format=torch.channels_last),
])  # fmt: skip
def test_what_leaves_parameters_where_they_are_is_allowed(change):
    net = Tied()
    weights = FlatParameters(net)
    change(net)
    weights.required_in_place(0)
    weights.flat.fill_(3)
    assert net.one.weight.unique().tolist() == [3]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_named(bad):
    net = Tied()
    weights = FlatParameters(net)
    net.one.weight.grad = torch.ones(2, 2)
    net.frozen.weight.grad = torch.full((2, 2), bad)  # which nobody sends
    weights.required_finite(1)
    net.norm.bias.grad = torch.tensor([0.0, bad])
    with pytest.raises(FloatingPointError, match="this one is not: norm.bias on rank 1"):
        weights.required_finite(1)
    weights.clear_gradients()
    weights.required_finite(1)


def test_gradients_whose_sum_overflows_and_sparse_ones_are_finite():
    table = nn.Embedding(5, 70_000, sparse=True).half()
    weights = FlatParameters(table)
    table(torch.tensor([1, 3])).sum().backward()
    assert table.weight.grad.is_sparse
    weights.required_finite(0)
    out = torch.zeros_like(weights.flat)
    weights.add_gradient(out, 2)
    assert out.view(5, -1)[:, 0].tolist() == [0, 2, 0, 2, 0]
    table.weight.grad = torch.ones(5, 70_000).half()
    weights.required_finite(0)


def alike(comm, root):
    net = Tied(seed=comm.rank)
    broadcast_module(comm, net, root)
    return [tensor.detach() for tensor in (*net.parameters(), *net.buffers())]


def test_all_begin_alike_with_what_is_frozen_and_buffers():
    net = Tied(seed=2)
    for mine in run(alike, 3, 2):
        for a, b in zip(mine, (*net.parameters(), *net.buffers()), strict=True):
            assert torch.equal(a, b)


def unlike(comm):
    mine, other = (rf"weight \(float32 \[{rows}, 2\]\)" for rows in (2 + comm.rank, 3 - comm.rank))
    said = f"tensor 0 is {mine} on rank {comm.rank}, and {other} on rank {1 - comm.rank}"
    with pytest.raises(ValueError, match=f"models must be equal on all ranks: {said}"):
        broadcast_module(comm, nn.Linear(2, 2 + comm.rank))


def test_models_that_differ():
    run(unlike, 2)


def frozen_unlike(comm):
    """Each rank freezes another layer; both are of one shape."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[comm.rank].requires_grad_(False)
    frozen = ", frozen" if comm.rank == 0 else ""
    said = rf"tensor 0 is 0.weight \(float32 \[4, 4\]{frozen}\) on rank {comm.rank}, and 0.weight"
    with pytest.raises(ValueError, match=f"models must be equal on all ranks: {said}"):
        broadcast_module(comm, net)


@pytest.mark.parametrize("checked", [True, False])
def test_ranks_that_froze_different_layers(checked):
    run(frozen_unlike, 2, checked=checked)


def test_weights_that_cannot_be_one_tensor():
    net = Tied()
    net.one.double()
    with pytest.raises(ValueError, match="of one dtype and device, not float32 on cpu and float64"):
        FlatParameters(net)
