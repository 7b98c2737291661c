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
    load_sharded(net, [unpacked(one) for one in reversed(saved)])  # in any order
    return net.module.seen.item()


def test_every_rank_has_a_buffer_of_its_own_again():
    """More ranks than were saved take those of the first ones."""
    assert run(loads_a_buffer, 3, run(saves_a_buffer, 2)) == [5.0, 6.0, 5.0]


class Counting(torch.nn.Linear):
    """A layer with state that is no tensor."""

    def __init__(self, calls):
        super().__init__(2, 2)
        self.calls = calls

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, calls):
        self.calls = calls


EXTRA = [{"calls": [3, 4]}, "0.weight", torch.arange(3), None]


def saves_extra_state(comm, stage):
    nets = [Sharded(torch.nn.Sequential(Counting(extra)), comm, stage=stage) for extra in EXTRA]
    return [[packed(state(net)) for state in (sharded_state, whole_state)] for net in nets]


def loads_extra_state(comm, stage, saved):
    """What each net has then, by the states of all ranks, and by the whole one."""
    found = []
    for number, _ in enumerate(EXTRA):
        for in_parts in True, False:
            net = Sharded(torch.nn.Sequential(Counting("another")), comm, stage=stage)
            states = [unpacked(mine[number][not in_parts]) for mine in saved]
            load_sharded(net, states) if in_parts else load_whole(net, states[0])
            whole = unpacked(saved[0][number][1])["model"]
            assert torch.equal(net.state_dict()["0.weight"], whole["0.weight"])
            found.append(net.module[0].calls)
    return found


@pytest.mark.parametrize("ranks, stage", [(1, 1), (2, 3)])
def test_state_that_is_no_tensor_comes_back(ranks, stage):
    saved = run(saves_extra_state, 2, stage)
    for found in run(loads_extra_state, ranks, stage, saved):
        assert [str(calls) for calls in found] == [str(extra) for extra in EXTRA for _ in range(2)]


def of_other_shapes(comm):
    """The same numbers of elements, and buffers that would be broadcast."""
    net, said = with_a_buffer(comm, 5.0), []
    for key, shape in ("weight", (4, 1)), ("seen", (1,)):
        state = net.state_dict()
        state[key] = state[key].reshape(shape)
        with pytest.raises(ValueError) as told:
            net.load_state_dict(state)
        said.append(str(told.value))
    with pytest.raises(ValueError) as told:
        load_sharded(net, [sharded_state(net) | {"ranks": 1, "rank": 0, "buffers": {}}])
    return [*said, str(told.value)]


def test_other_shapes_and_missing_buffers_are_refused():
    start = "the state to be loaded has other "
    assert run(of_other_shapes, 1)[0] == [
        start + "shapes of weight: torch.Size([4, 1]), not torch.Size([2, 2])",
        start + "shapes of seen: torch.Size([1]), not torch.Size([])",
        start + "buffers: set(), not {'seen'}",
    ]


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
