"""Ranks in one thread that do not see one another's state of torch."""

import functools
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.collectives import all_reduce
from course.worlds import RankError, run
from course.worlds.simulator.torch_state import keep_state
from tests.worlds.simulator.clusters import switched


def state():
    x = torch.ones(2)
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"), str(torch.empty(1).device), x.is_inference(),
        torch._C._is_fwd_grad_enabled(), Doubling.active(),
    )  # fmt: skip


class Doubling(TorchDispatchMode):
    """Every sum is twice what it should be."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if str(func) == "aten.add.Tensor" else out

    @staticmethod
    def active():
        if torch.is_inference_mode_enabled():
            return False
        x = torch.ones(1, device="cpu")
        return (x + x).item() == 4


class default_dtype:
    def __enter__(self):
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.set_default_dtype(torch.float32)


STATES = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "another dtype": default_dtype,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a device": lambda: torch.device("meta"),
    "a mode": Doubling,
}


def in_a_state_of_its_own(comm, names):
    """Each rank enters another context, and finds it as it was after every message."""
    usual, x, y = state(), torch.zeros(1), torch.zeros(1)
    with STATES[names[comm.rank]]() if names[comm.rank] else torch.enable_grad():
        own, seen = state(), []
        for _ in range(3):
            comm.exchange(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
            seen.append(state() == own)
            comm.exchange(x, (comm.rank - 1) % comm.size, y, (comm.rank + 1) % comm.size)
            seen.append(state() == own)
    comm.barrier()
    return seen, state() == usual, own != usual


@pytest.mark.parametrize("name", STATES)
def test_a_rank_keeps_its_own_state_and_no_other_gets_it(name):
    kept = run(in_a_state_of_its_own, 3, [None, name, None], on=switched(3))
    assert kept == [([True] * 6, True, rank == 1) for rank in range(3)]


def test_all_states_at_once():
    names = [None, *STATES, None]
    kept = run(in_a_state_of_its_own, len(names), names, on=switched(len(names)))
    assert [k[:2] for k in kept] == [([True] * 6, True)] * len(names)


def test_the_caller_s_state_comes_back():
    with torch.no_grad():
        run(in_a_state_of_its_own, 2, ["another dtype", "no grad"], on=switched(2))
        assert not torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_state_comes_back_when_the_call_fails():
    def spoil():
        torch.set_grad_enabled(False)
        raise KeyError("why")

    with pytest.raises(KeyError):
        keep_state(spoil)
    assert torch.is_grad_enabled()


# Backward passes


def net_and_loss(comm):
    torch.manual_seed(3)
    net = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(4)))
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(comm.rank))
    return net, lambda: net(x).tanh().square().sum()


def averaged_in_hooks(comm):
    """The all-reduce of each gradient waits within the backward pass, in a hook of autograd."""
    net, loss = net_and_loss(comm)
    for weights in net.parameters():
        weights.register_post_accumulate_grad_hook(lambda w: all_reduce(comm, w.grad, "mean"))
    for _ in range(3):
        net.zero_grad()
        loss().backward()
    return [weights.grad.tolist() for weights in net.parameters()]


def averaged_afterwards(comm):
    net, loss = net_and_loss(comm)
    loss().backward()
    for weights in net.parameters():
        all_reduce(comm, weights.grad, "mean")
    return [weights.grad.tolist() for weights in net.parameters()]


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_hooks_may_wait_for_messages_in_the_middle_of_a_backward_pass(ranks):
    threads = threading.active_count()
    in_hooks = run(averaged_in_hooks, ranks, on=switched(ranks))
    assert in_hooks == run(averaged_afterwards, ranks, on=switched(ranks))
    assert threading.active_count() == threads


class Shift(torch.autograd.Function):
    """Activations go to the right, gradients back to the left."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm, out = comm, torch.empty_like(x)
        comm.exchange(x, (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)
        return out

    @staticmethod
    def backward(ctx, grad):
        comm, out = ctx.comm, torch.empty_like(grad)
        comm.exchange(grad, (comm.rank - 1) % comm.size, out, (comm.rank + 1) % comm.size)
        return out, None


def through_others(comm):
    """y on rank r is made from x of rank r - 1, so the gradient of x comes from rank r + 1."""
    x = torch.full((3,), float(comm.rank + 1), requires_grad=True)
    y = Shift.apply(Shift.apply(x * 2, comm) * (comm.rank + 1), comm)
    (y * torch.arange(3.0)).sum().backward()
    (again,) = torch.autograd.grad((Shift.apply(x, comm) ** 2).sum(), x)
    return y.tolist(), x.grad.tolist(), again.tolist()


def test_functions_of_autograd_may_wait_forwards_and_backwards():
    for rank, (y, grad, again) in enumerate(run(through_others, 4, on=switched(4))):
        start, middle = (rank - 2) % 4 + 1, (rank - 1) % 4 + 1
        assert y == [2.0 * start * middle] * 3
        assert grad == [2.0 * ((rank + 1) % 4 + 1) * n for n in range(3)]
        assert again == [2.0 * (rank + 1)] * 3


def fails_in_a_hook(comm):
    x = torch.ones(2, requires_grad=True)
    x.register_hook(functools.partial(refuse, comm))
    (x * 2).sum().backward()


def refuse(comm, grad):
    comm.barrier()
    if comm.rank == 1:
        raise ArithmeticError("in the hook")
    comm.barrier()


def test_an_error_in_a_hook_is_told_with_its_line():
    threads = threading.active_count()
    with pytest.raises(RankError, match="in the hook") as caught:
        run(fails_in_a_hook, 3, on=switched(3))
    assert caught.value.rank == 1 and 'raise ArithmeticError("in the hook")' in str(caught.value)
    assert "course/comm" not in str(caught.value)
    assert threading.active_count() == threads


def waits_in_a_hook_for_ever(comm):
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda grad: comm.recv(torch.zeros(1), 1 - comm.rank))
    (x * 2).sum().backward()


def test_a_deadlock_in_hooks_is_told_and_ends_their_threads():
    threads = threading.active_count()
    with pytest.raises(RankError, match="rank 0 waits for rank 1 in recv"):
        run(waits_in_a_hook_for_ever, 2, on=switched(2))
    assert threading.active_count() == threads


def checkpointed(comm):
    """A backward pass within a backward pass, with messages in both."""
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda z: Shift.apply(z * 3, comm).sin(), x, use_reentrant=True)
    y.sum().backward()
    return x.grad.tolist()


def test_checkpoints_wait_too():
    expected = [3 * torch.cos(torch.tensor(3.0)).item()] * 3
    assert run(checkpointed, 3, on=switched(3)) == [pytest.approx(expected)] * 3
