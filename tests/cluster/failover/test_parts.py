"""Parts that any training has: taken back by as many ranks, or by others."""

import pytest
import torch
from torch import nn

from course.cluster.failover import Alike, Each, Model
from course.cluster.failover.parts import described, load_buffers, own_buffers
from course.cluster.failover.snapshot import Snapshot
from course.parallel.data import DataParallel
from course.parallel.sharded import Sharded
from course.parallel.tensor import ColumnLinear
from course.worlds import run


class Stateful(nn.Module):
    """A parameter, a frozen one that is tied, buffers of three kinds, and a state of its own."""

    def __init__(self, value):
        super().__init__()
        self.first = self.second = nn.Parameter(torch.full((2,), value), requires_grad=False)
        self.trained = nn.Parameter(torch.full((3,), value))
        self.register_buffer("mean", torch.full((2,), value))
        self.register_buffer("seen", torch.tensor(int(value)))
        self.register_buffer("mask", torch.full((2,), value), persistent=False)
        self.extra = value

    def get_extra_state(self):
        return {"extra": self.extra}

    def set_extra_state(self, state):
        self.extra = state["extra"]


def told(module):
    return [x.tolist() for x in (*module.parameters(), *module.buffers())], module.extra


def test_a_model_is_its_parameters_and_all_of_its_buffers():
    source, target = Model(Stateful(4.0)), Model(Stateful(1.0))
    target.load(source.shared(), [source.own()], 0, 1)
    assert told(target.module) == told(source.module) == told(Stateful(4.0))
    assert target.module.first is target.module.second


def test_buffers_are_each_rank_s_own_or_for_other_ranks_the_mean():
    owns = [own_buffers(Stateful(value)) for value in (1.0, 4.0)]
    for rank, size, mean, seen in ((1, 2, 4.0, 4), (0, 1, 2.5, 1), (2, 3, 2.5, 1), (1, 3, 2.5, 4)):
        module = Stateful(0.0)
        load_buffers(module, owns, rank, size)
        assert module.mean.tolist() == module.mask.tolist() == [mean, mean]
        assert module.seen == seen and module.extra == float(seen)


def test_a_constant_stays_what_it_is_on_other_ranks():
    """The float32 mean of three times the same number may be another one."""
    constants = torch.rand(99, generator=torch.Generator().manual_seed(0))
    module = nn.Module()
    module.register_buffer("constants", constants.clone())
    load_buffers(module, [own_buffers(module) for _ in range(3)], 0, 2)
    assert torch.equal(module.constants, constants)


def test_what_is_described():
    assert Model(nn.BatchNorm1d(2)).describe() == [
        "weight float32 [2]", "bias float32 [2]", "buffer running_mean float32 [2]",
        "buffer running_var float32 [2]", "buffer num_batches_tracked int64 []",
    ]  # fmt: skip
    net = nn.Linear(2, 2)
    groups = [{"params": [net.weight]}, {"params": [net.bias], "lr": 0.2}]
    assert described(torch.optim.SGD(groups, lr=0.1)) == ["SGD of groups of [1, 1]"]
    lines = ["Linear", "weight float32 [2, 2]", "bias float32 [2]"]
    assert Alike(net).describe() == Each(net).describe() == lines


def test_each_is_for_as_many_ranks():
    net = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="rank 1: Linear was saved in 3 parts, and there are 2"):
        Each(net).load(None, [net.state_dict()] * 3, 1, 2)
    Each(net).load(None, [{"weight": torch.ones(1, 1), "bias": torch.ones(1)}] * 2, 1, 2)
    assert net.weight == net.bias == 1


def refusals(comm):
    for net, said in (
        (Sharded(nn.Linear(2, 2), comm), "a Sharded net is no Model: save Shards"),
        (
            nn.Sequential(ColumnLinear(comm, nn.Linear(2, 4))),
            "0 is cut over ranks, and Model saves rank 0's",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            Model(net)


class Holder(nn.Module):
    """A part of it has the name that wrappers have for all of it."""

    def __init__(self):
        super().__init__()
        self.module, self.head = nn.Linear(1, 1), nn.Linear(1, 1)


def test_only_data_parallel_is_taken_off():
    assert "head.weight float32 [1, 1]" in Model(Holder()).describe()
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(1, 1))
    assert "buffer n_averaged int64 []" in Model(average).describe()


def test_what_is_cut_over_ranks_is_no_model():
    run(refusals, 2)


class Crossed(nn.Module):
    """Backward comes by its parameters in another order than that of their names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.last, self.first = nn.Linear(5, 3), nn.Linear(4, 5)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def steps(net, comm, numbers):
    """The gradients of all these steps."""
    generator, gradients = torch.Generator().manual_seed(comm.rank), []
    rows = [torch.randn(2, 4, generator=generator) for _ in range(6)]
    for number in numbers:
        net.zero_grad()
        net(rows[number]).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
        gradients.append([p.grad.tolist() for p in net.parameters()])
    return gradients


def interrupted(comm, keep_order):
    """Six steps at once; three and three, with a fresh wrapper in between."""
    expected = steps(DataParallel(Crossed(), comm, algorithm="ring"), comm, range(6))
    first = Model(DataParallel(Crossed(), comm, algorithm="ring"))
    steps(first.net, comm, range(3))
    shared, own = Snapshot().of((first.shared(), first.own()))
    if not keep_order:
        del shared["order"]
    second = Model(DataParallel(Crossed(), comm, algorithm="ring"))
    second.load(shared, [own] * comm.size, comm.rank, comm.size)
    return steps(second.net, comm, range(3, 6)) == expected[3:]


def test_three_ranks_add_up_in_the_same_order_again():
    """A ring adds up a number from the rank at which its chunk begins, and which chunk it is in
    depends on the order of backward, which DataParallel learns in its first step."""
    assert run(interrupted, 3, True) == [True] * 3
    assert run(interrupted, 3, False) == [False] * 3


def gathering(comm):
    net = DataParallel(nn.Linear(2, 2), comm)
    with net.no_sync():
        net(torch.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match=f"rank {comm.rank}: gradients that were gathered"):
        Model(net).shared()
    net.zero_grad()
    Model(net).shared()


def test_gradients_in_between_are_not_left_out_in_silence():
    run(gathering, 2)
