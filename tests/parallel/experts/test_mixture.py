"""A mixture of experts on many ranks is brute force on one: values, and every gradient."""

import copy
import functools
import math
import os

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.parallel.data.data_parallel import DataParallel
from course.parallel.experts.gating import NoisyTopKGate
from course.parallel.experts.mixture import MixtureOfExperts
from course.parallel.hybrid.gradients import SummedGradients, gradient_plan
from course.parallel.hybrid.grid import Grid
from course.worlds import RankError, processes, run, simulated
from tests.parallel.experts.drawn import (
    WIDTH,
    BruteForce,
    Case,
    Net,
    batch,
    by_brute_force,
    cases,
    expert,
    gate,
    on_ranks,
    own_rows,
    played,
)
from tests.parallel.test_worlds import WORLDS
from tests.worlds.netns.test_world import WHY_NOT
from tests.worlds.simulator.clusters import switched

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def required_same(case, results):
    expected, seen = by_brute_force(case), set()
    for rank, mine in enumerate(results):
        for name, value in mine.items():
            wanted = expected[name]
            if name[0] in "xy":
                wanted = wanted[own_rows(case, rank)]
            assert (value is None) == (wanted is None), (name, rank)
            if value is not None:
                torch.testing.assert_close(value, wanted, **CLOSE, msg=f"{name} on rank {rank}")
        seen.update(mine)
    assert seen == set(expected)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@settings(max_examples=6, deadline=None, database=None, derandomize=True,
          phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
@given(data=st.data())
def test_values_and_gradients_are_those_of_brute_force(ranks, data):
    drawn = data.draw(st.lists(cases(ranks), min_size=4, max_size=4))
    for case, *results in zip(drawn, *run(on_ranks, ranks, drawn)):
        required_same(case, results)


def half_of_it_learns(comm, case, wanting):
    """Expert 0 is frozen, on rank 0, and only the input of the rank `wanting` wants slopes."""
    net = MixtureOfExperts(comm, gate(case), expert(case), load_weight=0.2)
    x, target, noise = (part[own_rows(case, comm.rank)] for part in batch(case, 0))
    x.requires_grad_(comm.rank == wanting)
    y, balance, _ = net(x, noise)
    (((y - target) ** 2).sum() + balance).backward()
    return (
        x.grad,
        [p.grad for p in net.gate.parameters()],
        [p.grad for p in net.experts.parameters()],
    )


@pytest.mark.parametrize("wanting", [None, 0, 1])
def test_ranks_of_which_one_wants_no_slopes(wanting):
    case = Case((3, 2), experts=2, k=1, frozen=True, seed=2)
    net, (x, target, noise) = BruteForce(case), batch(case, 0)
    y, balance = net(x.requires_grad_(), noise)
    (((y - target) ** 2).sum() + balance).backward()
    told = run(half_of_it_learns, 2, case, wanting, timeout=5)
    slopes, gates, experts = zip(*told)
    for rank, mine in enumerate(slopes):
        assert (mine is None) == (rank != wanting)
        if mine is not None:
            torch.testing.assert_close(mine, x.grad[own_rows(case, rank)], **CLOSE)
    for p, a, b in zip(net.gate.parameters(), *gates, strict=True):
        torch.testing.assert_close(a + b, p.grad, **CLOSE)
    assert experts[0] == [None] * 4
    for p, own in zip(net.experts["1"].parameters(), experts[1], strict=True):
        torch.testing.assert_close(own, p.grad, **CLOSE)


UNEVEN = Case((5, 0, 3), experts=7, k=2, capacity=1.0, seed=3, biased=True)


def test_cases_have_what_is_hard():
    """Tokens that are dropped, experts without one, ranks without one."""
    plan = run(planned, 3, UNEVEN)[1]
    assert sum(plan.dropped) and 0 in plan.tokens and sum(plan.asked[1]) == 0
    assert plan.cuts == (0, 3, 5, 7) and plan.imbalance > 1.1


def planned(comm, case):
    mixture = MixtureOfExperts(comm, gate(case), expert(case), capacity_factor=case.capacity)
    x, _, noise = (part[own_rows(case, comm.rank)] for part in batch(case, 0))
    return mixture(x, noise).plan


@pytest.mark.parametrize("world", ["hosts", "mpi", "imagined"])
def test_it_ends_with_the_same_bits_in_every_world(world):
    if world == "hosts" and WHY_NOT:
        pytest.skip(WHY_NOT)
    here, there = (run(on_ranks, 3, [UNEVEN], on=on) for on in (None, WORLDS[world]()))
    for mine, theirs in zip(here, there, strict=True):
        for name, value in mine[0].items():
            assert torch.equal(value, theirs[0][name]), name


@pytest.mark.parametrize("ranks", [5, 6, 8])
def test_on_more_ranks_than_cores(ranks):
    case = Case((3, 0, 1, 5, 0, 2, 1, 1)[:ranks], experts=9, k=3, capacity=1.2, seed=5)
    told = run(on_ranks, ranks, [case], on=processes(oversubscribe=True))
    required_same(case, [mine for (mine,) in told])


def copies(comm, case):
    """Two copies of all experts, of three ranks each or two, on 2 x n ranks."""
    grid = Grid(comm, data=2, expert=comm.size // 2)
    knobs = {"load_weight": 0.2, "everyone": comm}
    net = Net(MixtureOfExperts(grid["expert"], gate(case), expert(case), **knobs), case)
    plan = gradient_plan(net, comm, {"mixture.experts": grid["data"]})
    gradients = SummedGradients(net, plan)
    told = played(net, case, own_rows(case, comm.rank))
    return told, [(group.comm.members, group.names) for group in plan], len(gradients.parts)


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_an_expert_is_summed_over_its_copies_and_over_no_other_expert(ranks):
    case = Case((4, 1, 0, 3, 2, 2)[:ranks], experts=3, k=2, seed=8, uses=2)
    world = processes(oversubscribe=True)
    told, plans, parts = zip(*run(copies, ranks, case, on=world, timeout=5))
    required_same(case, told)
    for rank, ((everyone, shared), (members, own)) in enumerate(plans):
        assert everyone == tuple(range(ranks))
        assert members == (rank % (ranks // 2), rank % (ranks // 2) + ranks // 2)
        assert "body.weight" in shared and "mixture.gate.weight" in shared
        assert all(name.startswith("mixture.experts.") for name in own)
    assert parts == (2,) * ranks


def averaged(comm, case):
    """What a wrapper that averages everything makes of it: it finds other experts elsewhere."""
    DataParallel(Net(MixtureOfExperts(comm, gate(case), expert(case)), case), comm)


def test_data_parallel_around_all_of_it_is_refused():
    with pytest.raises(RankError, match="models must be equal on all ranks.*mixture.experts"):
        run(averaged, 2, Case((2, 2)))


def metered(comm, case):
    net = MixtureOfExperts(comm, gate(case), expert(case), capacity_factor=case.capacity)
    x, _, noise = (part[own_rows(case, comm.rank)] for part in batch(case, 0))
    counts = [(comm.meter.sent_bytes, comm.meter.sent_messages)]
    y, balance, plan = net(x.requires_grad_(), noise)
    counts.append((comm.meter.sent_bytes, comm.meter.sent_messages))
    (y.sum() + balance).backward()
    counts.append((comm.meter.sent_bytes, comm.meter.sent_messages))
    return plan, [[b - a for a, b in zip(*each)] for each in zip(counts, counts[1:])]


@pytest.mark.parametrize("case", [UNEVEN, Case((4,), 3), Case((2, 9), 5), Case((3, 3, 3, 3), 4)])
def test_bytes_and_messages_are_those_of_the_formula(case):
    for rank, (plan, told) in enumerate(run(metered, len(case.shares), case)):
        row = 8 * WIDTH
        for cost, said in zip(
            (plan.forward_cost(row, row, 8), plan.there_and_back(row, row)), told
        ):
            assert said == [cost.sent_bytes[rank], cost.sent_messages[rank]]


def of_shapes(comm):
    """On tensors without values; what was sent each way."""
    made = NoisyTopKGate(16, 6, k=2).to(comm.device)
    net = MixtureOfExperts(comm, made, lambda i: nn.Linear(16, 8, device=comm.device))
    x = torch.ones(10 + comm.rank, 16, device=comm.device, requires_grad=True)
    before = comm.meter.sent_bytes
    y, balance, plan = net(x)
    middle = comm.meter.sent_bytes
    (y.sum() + balance).backward()
    return plan, y.shape, middle - before, comm.meter.sent_bytes - middle


def test_shapes_alone_send_the_same_bytes_in_turn():
    told = run(of_shapes, 4, on=simulated(one_switch(4, FREE, FDR), device="meta"))
    for rank, (plan, shape, there, back) in enumerate(told):
        assert plan.tokens == [17, 17, 15, 15, 14, 14] and shape == (10 + rank, 8)
        assert there == plan.forward_cost(64, 32, 4).sent_bytes[rank]
        assert back == plan.there_and_back(32, 64).sent_bytes[rank]


def as_programs_use_it(comm, case, checkpointed):
    """Checkpointed, with two losses and backwards, leading axes, keywords, a copy, a state of it,
    float32, and without slopes: each against the plain use."""
    net = MixtureOfExperts(comm, gate(case), expert(case), capacity_factor=case.capacity)
    x, _, noise = (part[own_rows(case, comm.rank)] for part in batch(case, 0))
    shaped, same = x.view(2, -1, WIDTH).transpose(0, 1), {}
    rows = shaped.reshape(-1, WIDTH)

    def slopes(module, call, *losses):
        module.zero_grad()
        out = call(module)
        for loss in losses:
            loss(out).backward(retain_graph=True)
        return out.y.detach(), [p.grad for p in module.parameters()]

    def both(out):
        return out.y.square().sum() + 3 * out.balance

    plain, wanted = slopes(net, lambda m: m(rows, noise), both)

    def compare(name, y, found):
        same[name] = torch.equal(y.reshape(plain.shape), plain) and all(
            (a is None and b is None) or torch.allclose(a, b, rtol=1e-12, atol=1e-13)
            for a, b in zip(found, wanted, strict=True)
        )

    again = copy.deepcopy(net)
    compare("shaped", *slopes(net, lambda m: m(x=shaped, noise=noise), both))
    halves = (lambda out: out.y.square().sum()), (lambda out: 3 * out.balance)
    compare("two losses", *slopes(net, lambda m: m(rows, noise), *halves))
    if checkpointed:
        again_in_backward = functools.partial(checkpoint, use_reentrant=False)
        compare("checkpointed", *slopes(net, lambda m: again_in_backward(m, rows, noise), both))
    for p in again.parameters():
        p.data.zero_()
    again.load_state_dict(net.state_dict())
    compare("copied", *slopes(again, lambda m: m(rows, noise), both))
    with torch.no_grad():
        same["without slopes"] = torch.equal(net(rows, noise).y, plain)
    single = net.float()(rows.float(), noise.float()).y
    same["float32"] = single.dtype == torch.float32 and torch.allclose(
        single.double(), plain, rtol=1e-4, atol=1e-4)  # fmt: skip
    return same


@pytest.mark.parametrize("world", ["processes", "imagined"])
def test_it_can_be_used_as_a_layer_is(world):
    case = Case((4, 0, 6), experts=5, k=2, seed=4)
    # the imagined cluster does not keep checkpoint's hooks apart by rank yet
    real = world == "processes"
    on = processes() if real else switched(3)
    for same in run(as_programs_use_it, 3, case, real, on=on, timeout=5):
        assert all(same.values()), same


def refusals(comm):
    sentences = []
    factors = ({"capacity_factor": factor} for factor in (0, -1.0, math.inf, math.nan, "1"))
    for experts, knobs in ((2, {}), *((3, knobs) for knobs in factors)):
        with pytest.raises(ValueError) as caught:
            MixtureOfExperts(comm, NoisyTopKGate(WIDTH, experts, k=1), expert(Case(())), **knobs)
        sentences.append(str(caught.value))
    return sentences


def test_what_cannot_be_is_refused_with_a_sentence():
    fewer, none, negative, *others = run(refusals, 3)[1]
    assert fewer == (
        "rank 1: every rank has an expert at least, so 2 of them cannot be on 3 ranks: give them a "
        "smaller group, as a grid's axis"
    )
    assert none == "rank 1: a capacity factor is above 0, or None for all tokens, not 0"
    assert [said.split()[-1] for said in (negative, *others)] == ["-1.0", "inf", "nan", "'1'"]


def too_few(comm):
    with pytest.raises(ValueError) as caught:
        MixtureOfExperts(comm, NoisyTopKGate(WIDTH, 2), expert(Case(())),
                         everyone=comm.split(comm.rank))  # fmt: skip
    return str(caught.value)


def test_everyone_is_no_part_of_the_ranks():
    said = run(too_few, 2, on=switched(2))[1]
    assert said.startswith("rank 1: everyone are all ranks that share the experts and more, and ")


def disagreeing(comm, k, knobs):
    gate = NoisyTopKGate(WIDTH, 3, k=1 + k * comm.rank)
    MixtureOfExperts(comm, gate, expert(Case(())), **(knobs if comm.rank else {}))


@pytest.mark.parametrize("k, knobs, theirs", [
    (0, {"capacity_factor": 2}, "1 of 3 experts, a capacity factor of 2 and weights 0.1 and 0.1"),
    (0, {"load_weight": 1}, "1 of 3 experts, a capacity factor of None and weights 0.1 and 1 of"),
    (1, {}, "2 of 3 experts"),
])  # fmt: skip
def test_ranks_make_the_same_mixture(k, knobs, theirs):
    """Other weights of balance are another loss, and nobody would notice."""
    with pytest.raises(RankError, match="make the same mixture: rank 0 has 1 of 3 experts, a capa.*"
                                        f" rank 1 has {theirs}"):  # fmt: skip
        run(disagreeing, 2, k, knobs, on=switched(2))


def steps(comm, case, dies_at):
    """Rank 1 dies before it has done `dies_at` parts of a step."""
    net = MixtureOfExperts(comm, gate(case), expert(case))
    parts = iter(range(9))

    def part(_=None):
        if comm.rank == 1 and next(parts) == dies_at:
            os._exit(3)

    for module in (net.gate, *net.experts.values()):
        module.register_forward_hook(lambda *_: part())
    x = batch(case, 0)[0][own_rows(case, comm.rank)].requires_grad_()
    part()
    y, balance, _ = net(x)
    part()
    y.register_hook(part)
    x.register_hook(part)
    (y.sum() + balance).backward()
    comm.barrier()


@pytest.mark.parametrize("dies_at", range(6))
def test_a_rank_that_dies_ends_the_others_and_is_named(dies_at):
    with pytest.raises(RankError, match="rank 1 exited with status 3") as caught:
        run(steps, 3, Case((3, 3, 3), experts=4, seed=1), dies_at, timeout=5)
    assert not caught.value.running and not caught.value.values
