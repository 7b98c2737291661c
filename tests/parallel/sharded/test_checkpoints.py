"""Saved by some ranks and loaded by others, training goes on as if nothing had been."""

import functools
import io

import pytest
import torch

from course.parallel.sharded import Sharded, load_sharded, load_whole, sharded_state, whole_state
from course.worlds import run
from tests.parallel.sharded import programs

STEPS = 4


def made(comm, stage, kind):
    net = Sharded(programs.Net(seed=7 + comm.rank), comm, stage=stage)
    chosen, knobs = programs.OPTIMIZERS[kind]
    return net, net.optimizer(chosen, **knobs)


def trained(net, optimizer, steps):
    for step in steps:
        x, y = (part.tensor_split(net.comm.size)[net.comm.rank] for part in programs.rows(step))
        optimizer.zero_grad()
        programs.plain(net, optimizer, None, step, x, y)


def first_half(comm, stage, kind):
    """What each rank saves, as bytes, after half of the steps."""
    net = Sharded(programs.Net(), comm, stage=stage)
    chosen, knobs = programs.OPTIMIZERS[kind]
    optimizer = net.optimizer(chosen, **knobs)
    trained(net, optimizer, range(STEPS // 2))
    return [packed(state(net, optimizer)) for state in (sharded_state, whole_state)]


def second_half(comm, stage, kind, saved, sharded):
    net, optimizer = made(comm, stage, kind)
    states = [unpacked(one) for one in saved]
    if sharded:
        load_sharded(net, states, optimizer)
    else:
        load_whole(net, states[0], optimizer)
    trained(net, optimizer, range(STEPS // 2, STEPS))
    return net.state_dict()


def packed(state) -> bytes:
    torch.save(state, file := io.BytesIO())
    return file.getvalue()


def unpacked(state: bytes):
    return torch.load(io.BytesIO(state))


@functools.cache
def uninterrupted(kind):
    return programs.serially(programs.plain, kind, STEPS)


@pytest.mark.parametrize(
    "kind, before, after", [("adamw", (3, 3), (2, 1)), ("momentum", (1, 2), (3, 3)),
                            ("adam", (2, 2), (4, 3))]
)  # fmt: skip
def test_saved_by_some_ranks_and_loaded_by_others(kind, before, after):
    sharded, whole = zip(*run(first_half, before[0], before[1], kind, timeout=60))
    for saved, in_parts in ((sharded, True), (whole, False)):
        for mine in run(second_half, after[0], after[1], kind, saved, in_parts, timeout=60):
            for name, value in uninterrupted(kind).items():
                torch.testing.assert_close(mine[name], value, rtol=1e-12, atol=1e-12)


def test_one_process_goes_on_with_a_whole_state():
    """It is what the module and torch's optimizer would have saved themselves."""
    _, whole = run(first_half, 3, 3, "adam", timeout=60)[0]
    net, state = programs.Net(), unpacked(whole)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for step in range(STEPS // 2, STEPS):
        optimizer.zero_grad()
        programs.plain(net, optimizer, None, step, *programs.rows(step))
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, uninterrupted("adam")[name], rtol=1e-12, atol=1e-12)


def taken_back(comm):
    """The rate and the momenta of an optimizer that was given the state of before its first step"""
    net = Sharded(torch.nn.Linear(3, 2), comm, stage=2)
    optimizer = net.optimizer(torch.optim.SGD, lr=0.5, momentum=0.9)
    fresh = sharded_state(net, optimizer)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.1
    load_sharded(net, [fresh], optimizer)
    return optimizer.param_groups[0]["lr"], len(optimizer.state)


def test_settings_are_the_saved_ones_and_what_was_not_saved_is_gone():
    assert run(taken_back, 1) == [(0.5, 0)]


def with_a_buffer(comm, number):
    module = torch.nn.Linear(2, 2)
    module.register_buffer("seen", torch.zeros(()))
    net = Sharded(module, comm)
    module.seen.fill_(number)
    return net


def saves_a_buffer(comm):
    return packed(sharded_state(with_a_buffer(comm, 5.0 + comm.rank)))


def loads_a_buffer(comm, saved):
    net = with_a_buffer(comm, 0.0)
    load_sharded(net, [unpacked(one) for one in saved])
    return net.module.seen.item()


def test_every_rank_has_a_buffer_of_its_own_again():
    """More ranks than were saved take those of the first ones."""
    assert run(loads_a_buffer, 3, run(saves_a_buffer, 2)) == [5.0, 6.0, 5.0]


def refusals(comm):
    net = Sharded(torch.nn.Linear(3, 2), comm, stage=2)
    optimizer, said = net.optimizer(torch.optim.SGD, lr=0.1), []
    other = Sharded(torch.nn.Linear(3, 2, bias=False), comm, stage=2)
    states = [sharded_state(net, optimizer), sharded_state(other)]
    for load in (lambda: load_sharded(net, states[:1]), lambda: load_whole(net, {"model": {}}),
                 lambda: load_sharded(net, [states[1] | {"ranks": 1, "rank": 0}]),
                 lambda: load_sharded(net, [states[0] | {"ranks": 1, "rank": 0}])):  # fmt: skip
        with pytest.raises(ValueError, match="the state to be loaded has other") as told:
            load()
        said.append(str(told.value).removeprefix("the state to be loaded has other "))
    return said


def test_what_cannot_be_loaded():
    said = run(refusals, 2)[0]
    assert said[0] == "ranks: {0}, not {0, 1}"
    assert said[1].startswith("names: set(), not {")
    assert said[2].startswith("names: {'weight'}, not {")
    assert said[3] == "numbers of elements of weight: 2, not 6"
