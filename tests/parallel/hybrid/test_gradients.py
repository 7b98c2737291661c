"""Sums of gradients over the ranks that hold the same parameter: the plan, and its execution."""

import pytest
import torch
from torch import nn

from course.parallel.hybrid.gradients import GradientGroup, SummedGradients, gradient_plan
from course.parallel.hybrid.grid import Grid
from course.worlds import run


class Net(nn.Module):
    """`own` differs between ranks; all else is alike, some of it tied or frozen."""

    def __init__(self, number):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.frozen = nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)
        self.tied = self.body
        torch.manual_seed(1 + number)
        self.own = nn.ModuleDict({str(number): nn.Linear(3, 3)})
        self.double()

    def forward(self, x):
        (own,) = self.own.values()
        return self.tied(torch.tanh(self.frozen(torch.tanh(own(self.body(x))))))


def batch(step, rank):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(10 * step + rank)).double()


def grads(net):
    return {name: None if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}


def trained(comm):
    """Five uses: two backwards upon each other, cleared, thawed, gathered, and once too few."""
    grid = Grid(comm, data=comm.size // 2, expert=2)
    net = Net(grid.coordinates["expert"])
    if comm.rank:
        net.body.weight.data.zero_()  # it begins with rank 0's
    gradients = SummedGradients(
        net, gradient_plan(net, comm, {"own": grid["data"]}), bucket_mb=1e-5
    )
    told = []
    for step in range(5):
        if step in (2, 4):
            net.zero_grad(set_to_none=step == 2)
        if step == 3:
            net.frozen.requires_grad_(True)
            before = comm.meter.sent_messages
            with gradients.no_sync():
                net(batch(9, comm.rank)).square().sum().backward()
            assert comm.meter.sent_messages == before
        net(batch(step, comm.rank)).square().sum().backward()
        told.append(grads(net))
    del gradients
    net.zero_grad()
    net(batch(0, comm.rank)).square().sum().backward()
    alone = Net(grid.coordinates["expert"])
    alone(batch(0, comm.rank)).square().sum().backward()
    same = [
        torch.equal(a.grad, b.grad) for a, b in zip(net.own.parameters(), alone.own.parameters())
    ]
    return told, all(same)


def serially(ranks, step, told):
    """What all ranks of `ranks` give together, added to what was there."""
    nets = [Net(rank % 2) for rank in range(ranks)]
    for rank, net in enumerate(nets):
        net.frozen.requires_grad_(step >= 3)
        for one in (9, step) if step == 3 else (step,):
            net(batch(one, rank)).square().sum().backward()
    found = [grads(net) for net in nets]
    whole = {}
    for rank in range(ranks):
        for name, value in found[rank].items():
            if value is not None:
                whole[name] = whole.get(name, 0) + value
    if step in (1, 3):
        for name, value in told.items():
            whole[name] = whole.get(name, 0) + value
    return whole


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_summed_over_their_group_and_over_nobody_else(ranks):
    results, ended = zip(*run(trained, ranks))
    assert all(ended)
    before = {}
    for step in range(5):
        before = serially(ranks, step, before)
        for rank in range(ranks):
            for name, value in results[rank][step].items():
                wanted = before.get(name)
                assert (value is None) == (wanted is None), (step, rank, name)
                if value is not None:
                    torch.testing.assert_close(value, wanted, rtol=1e-12, atol=1e-13)
                assert not name.startswith("own") or name.startswith(f"own.{rank % 2}")


def beside(comm):
    net = nn.ModuleDict({"own": nn.Linear(1, 1), "owner": nn.Linear(1, 1)})
    return [group.names for group in gradient_plan(net, comm, {"own": comm})]


def test_a_name_is_that_of_a_whole_module():
    assert run(beside, 1) == [[("owner.weight", "owner.bias"), ("own.weight", "own.bias")]]


def wrongly_planned(comm, names):
    net = Net(comm.rank)
    with pytest.raises(ValueError) as caught:
        SummedGradients(net, [GradientGroup(comm, names), GradientGroup(comm, ("body.bias",))])
    return str(caught.value)


def test_a_plan_of_ones_own_names_every_parameter_once():
    rule = "rank 1: a parameter is summed over one group, and "
    assert run(wrongly_planned, 2, ("body.bias",))[1] == rule + "body.bias is in two groups"
    assert run(wrongly_planned, 2, ("head",))[1].startswith(rule + "head is none of body.weight, ")


def summed_twice(comm):
    net = Net(comm.rank)
    gradients = SummedGradients(net, gradient_plan(net, comm, {"own": comm.split(comm.rank)}))
    with pytest.raises(ValueError) as caught:
        SummedGradients(net.body, gradient_plan(net.body, comm))
    said = str(caught.value)
    del gradients, caught
    SummedGradients(net.body, gradient_plan(net.body, comm))
    return said


def test_a_gradient_that_is_summed_already_is_refused():
    """It was as many times too large as there are ranks."""
    said = run(summed_twice, 2)[1]
    assert said == "rank 1: weight is summed over ranks already: let go of what does it before"


def with_parts(comm):
    net = Net(comm.rank)
    apart = {"body": comm, "frozen": comm, "own": comm.split(comm.rank)}
    plan = gradient_plan(net, comm, apart)
    return [len(group.names) for group in plan], len(SummedGradients(net, plan).parts)


def test_a_group_of_no_names_and_one_of_one_rank_have_nothing_to_sum():
    assert run(with_parts, 2) == [([0, 2, 2, 2], 2)] * 2


def planned(comm):
    net = Net(comm.rank)
    plan = gradient_plan(net, comm, {"own": comm.split(comm.rank), "body.bias": comm})
    with pytest.raises(ValueError) as caught:
        gradient_plan(net, comm, {"experts": comm})
    return [str(group) for group in plan], str(caught.value)


def test_the_plan_names_every_parameter_once():
    told, refused = run(planned, 2)[1]
    assert told == [
        "body.weight, frozen.weight, frozen.bias: summed over ranks 0, 1",
        "own.1.weight, own.1.bias: on rank 1 alone",
        "body.bias: summed over ranks 0, 1",
    ]
    assert refused.startswith(
        "rank 1: gradients apart are those of a submodule or parameter, and 'experts' is none of "
    )
