"""Operations counted by torch's formulas, bytes by what an operation touches."""

import functools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from course.cluster.hardware import GTX_680
from course.worlds import run
from course.worlds.simulator.op_counter import OpCounter, roofline
from tests.worlds.simulator.clusters import switched


class Charges(list):
    """What a counter asks of its simulation: to charge, and to switch generators."""

    switched = False

    def charge(self, *operation):
        self.append(operation)

    @property
    def random(self):
        return self

    def switch(self):
        self.switched = True


def counted(call):
    """[(operation, flops, bytes), ...] of a call, and what it returned."""
    found = Charges()
    with OpCounter(found):
        value = call()
    return found, value


def test_a_product_costs_two_flops_for_each_pair_and_its_three_matrices():
    a, b = torch.rand(3, 4), torch.rand(4, 5)
    assert counted(lambda: a @ b)[0] == [("mm", 2 * 3 * 4 * 5, 4 * (12 + 20 + 15))]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_product_that_is_added_in_place_costs_what_it_costs_elsewhere(device):
    whole, a, b = (torch.empty(2, *shape, device=device) for shape in ((3, 5), (3, 4), (4, 5)))
    charges, _ = counted(lambda: whole.baddbmm_(a, b))
    assert [(name, flops) for name, flops, _ in charges] == [("baddbmm_", 2 * 2 * 3 * 4 * 5)]


@pytest.mark.parametrize(
    ("call", "charge"),
    [
        (lambda x: x.t()[1:].unsqueeze(0).detach(), []),
        (lambda x: torch.empty_like(x).resize_(3), []),
        (lambda x: x.add_(1), [("add_", 0, 2 * 48)]),
        (lambda x: x.clone(), [("clone", 0, 2 * 48)]),
        (lambda x: x.copy_(torch.zeros(4)), [("zeros", 0, 16), ("copy_", 0, 16 + 48)]),
        (lambda x: x.zero_(), [("zero_", 0, 48)]),
        (lambda x: torch.cat([x, x]), [("cat", 0, 4 * 48)]),
        (lambda x: x.max(dim=0), [("max", 0, 48 + 16 + 32)]),
        (lambda x: x.split(2), []),
        (lambda x: x.normal_(), [("normal_", 0, 48)]),
        (lambda x: x.uniform_(), [("uniform_", 0, 48)]),
        (lambda x: x.new_zeros(2), [("new_zeros", 0, 8)]),
        (lambda x: torch.full_like(x, 3.0, dtype=torch.float64), [("full_like", 0, 96)]),
        (lambda x: torch.rand_like(x), [("rand_like", 0, 48)]),
    ],
)
def test_bytes_are_those_that_are_read_and_written(call, charge):
    for device in ("cpu", "meta"):
        with torch.device(device):
            assert counted(lambda: call(torch.empty(3, 4)))[0] == charge


def net_and_input(device):
    with torch.device(device):
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(8 * 15 * 15, 10),
        )  # fmt: skip
        return net, torch.zeros(4, 3, 32, 32)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_flops_of_a_step_are_those_of_torch_s_own_counter(device):
    net, x = net_and_input(device)
    step = lambda: net(x).sum().backward()  # noqa: E731
    with FlopCounterMode(display=False) as theirs:
        step()
    assert sum(flops for _, flops, _ in counted(step)[0]) == theirs.get_total_flops()


def step_on_rank(comm):
    net, x = net_and_input(comm.device)
    net(x).sum().backward()


def test_a_backward_pass_is_counted_on_its_rank():
    world = switched(3)
    run(step_on_rank, 3, on=world)
    net, x = net_and_input("meta")
    with FlopCounterMode(display=False) as theirs:
        net(x).sum().backward()
    assert [rank.flops for rank in world.report.ranks] == [theirs.get_total_flops()] * 3


IN_PLACE = [
    lambda x, y: x.add_(y), lambda x, y: x.mul_(2), lambda x, y: x.add_(y, alpha=2),
    lambda x, y: x.copy_(y), lambda x, y: x.relu_(), lambda x, y: x.add_(y[0]),
    lambda x, y: torch.minimum(x, y, out=x), lambda x, y: x.addcmul_(y, y), lambda x, y: x.t_(),
    lambda x, y: x.uniform_(), lambda x, y: torch.mul(y, 2.0, out=x),
    lambda x, y: torch.abs(y + 0j, out=x),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(IN_PLACE)))
def test_in_place_on_meta_has_the_shape_it_has_with_memory(number):
    shapes = []
    for device in ("cpu", "meta"):
        x, y = torch.zeros(3, 4, device=device), torch.ones(3, 4, device=device)
        out = counted(functools.partial(IN_PLACE[number], x, y))[1]
        assert out is x
        shapes.append((out.shape, out.stride(), out.dtype, out._version > 0))
    assert shapes[0] == shapes[1]


def test_what_is_drawn_without_memory_asks_no_rank_s_generator():
    found = Charges()
    with OpCounter(found):
        torch.empty(3, device="meta").uniform_()
        assert not found.switched
        torch.empty(3, device="cpu").uniform_()
        assert found.switched


def test_in_place_on_meta_refuses_what_it_refuses_with_memory():
    x = torch.zeros(3, device="meta")
    with pytest.raises(RuntimeError, match="broadcast"):
        counted(lambda: x.add_(torch.zeros(4, device="meta")))
    with pytest.raises(RuntimeError, match="Promotion"):
        counted(lambda: torch.zeros(3, dtype=torch.int32, device="meta").add_(x))
    with pytest.raises(RuntimeError, match="can't be cast"):
        counted(lambda: torch.mul(x + 0j, 2.0, out=x))


class Reached(TorchDispatchMode, list):
    """The operations that reach torch."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.append(func)
        return func(*args, **(kwargs or {}))


def test_torch_is_not_asked_what_becomes_of_an_output_that_is_there():
    x, out = torch.zeros(3, device="meta"), torch.zeros(3, device="meta")
    with Reached() as reached:
        charges, given = counted(lambda: torch.mul(x, 2.0, out=out))
    assert given is out
    assert charges == [("mul", 0, 24)]
    assert reached == []


def test_the_roofline_is_the_slower_of_arithmetic_and_memory():
    assert roofline("mm", 3090e9, 1, GTX_680) == 1.0
    assert roofline("add", 1, 192.3e9, GTX_680) == 1.0


def test_gradients_flow_through_what_is_counted():
    x = torch.arange(3.0, requires_grad=True)
    _, y = counted(lambda: (x * x).sum())
    y.backward()
    assert x.grad.tolist() == [0, 2, 4]
