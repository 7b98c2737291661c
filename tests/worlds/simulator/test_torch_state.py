"""Ranks in one thread that do not see one another's state of torch."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from course.parallel.array.replicated import copied, summed
from course.worlds import run
from course.worlds.simulator.torch_state import keep_state
from tests.worlds.simulator.clusters import switched


def state():
    x = torch.ones(2)
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"), str(torch.empty(1).device), x.is_inference(),
        torch._C._is_fwd_grad_enabled(), Doubling.active(), saved(),
    )  # fmt: skip


def saved():
    """What a product keeps of a 3 for its backward pass."""
    if torch.is_inference_mode_enabled():
        return None
    with torch.enable_grad():
        x = torch.full((1,), 3.0, requires_grad=True, device="cpu")
        return (x * x).grad_fn._saved_self.item()


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


class Float64ByDefault:
    def __enter__(self):
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.set_default_dtype(torch.float32)


STATES = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "another dtype": Float64ByDefault,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a device": lambda: torch.device("meta"),
    "a mode": Doubling,
    "saved otherwise": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda x: x.detach() + 1, lambda x: x
    ),
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


def checkpointed(comm):
    """The slope of a checkpoint that communicates on the way there and again on the way back."""
    x = torch.full((1,), float(comm.rank + 1), requires_grad=True)
    y = checkpoint(lambda x: summed(comm, x * x), copied(comm, x), use_reentrant=False)
    y.backward()
    return y.item(), x.grad.item()


def test_a_checkpoint_may_communicate():
    assert run(checkpointed, 3, on=switched(3)) == [(14.0, 2.0 * (1 + 2 + 3))] * 3


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
