"""Training on shards is the serial training: every parameter, in every stage, on any ranks."""

import copy
import functools
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course.learning.training.large_batch import LARS
from course.parallel.sharded import Sharded
from course.worlds import RankError, run
from tests.parallel.data import drawn
from tests.parallel.data.test_reducer import FIXED
from tests.parallel.sharded import programs
from tests.worlds.simulator.clusters import switched


def layers(module):
    return isinstance(module, nn.Linear | nn.LayerNorm | programs.Block)


SETTINGS = [{"stage": 1, "bucket_mb": 3e-4}, {"stage": 2, "bucket_mb": 3e-4}, {"stage": 3},
            {"stage": 3, "units": layers}]  # fmt: skip


def every_program(comm, kind):
    return [programs.on_shards(comm, program, kind, 5, **settings)
            for program in programs.PROGRAMS for settings in SETTINGS]  # fmt: skip


@functools.cache
def expected(kind):
    return [programs.serially(program, kind, 5) for program in programs.PROGRAMS for _ in SETTINGS]


@pytest.mark.parametrize(
    "ranks, kind", [(1, "momentum"), (2, "adam"), (3, "momentum"), (4, "adamw")]
)
def test_five_steps_of_any_program_are_the_serial_ones(ranks, kind):
    for rank, ended in enumerate(run(every_program, ranks, kind, timeout=60)):
        for number, (mine, serial) in enumerate(zip(ended, expected(kind), strict=True)):
            program, settings = divmod(number, len(SETTINGS))
            where = f"rank {rank}, {programs.PROGRAMS[program].__name__}, {SETTINGS[settings]}: "
            assert mine.keys() == serial.keys()
            for name, value in serial.items():
                torch.testing.assert_close(
                    mine[name], value, rtol=1e-12, atol=1e-12,
                    msg=lambda said, where=f"{where}{name}: ": where + said,
                )  # fmt: skip


class Player(drawn.Player):
    """A drawn program on shards; what is seen are whole gradients."""

    def __init__(self, wrapped, net, comm):
        super().__init__(wrapped, net, comm)
        self.optimizer = wrapped.optimizer(torch.optim.SGD, lr=0.05, momentum=0.9)

    def do(self, act):
        getattr(self, act.kind.replace(" ", "_"))(act)
        self.seen.append(whole_gradients(self.wrapped))


def whole_gradients(net):
    found = {}
    for flat in net.flats:
        own = [torch.zeros_like(x) if x.grad is None else x.grad for x in flat.shards.values()]
        found |= flat.whole_of(net.comm, torch.cat(own))
    named = {p: name for name, p in net.module.named_parameters()}
    shards = net.shards
    return [None if shards[name].grad is None else found[p].clone() for p, name in named.items()]


def play(comm, parts, acts, settings):
    net = drawn.Net(parts, seed=comm.rank)
    player = Player(Sharded(net, comm, **settings), net, comm)
    for act in acts:
        player.do(act)
    return player.seen, [player.wrapped.state_dict()[name] for name, _ in net.named_parameters()]


def required_same_play(program, ranks, on, settings):
    parts, acts = program
    if settings["stage"] == 3:  # where weights are used outside of forwards they must be whole
        acts = [act for act in acts if "regulariser" not in act.kind]
    seen, weights = drawn.play(parts, acts)
    rtol, atol = (1e-3, 1e-5) if "single" in parts else (1e-9, 1e-11)
    for rank, (mine, end) in enumerate(run(play, ranks, parts, acts, settings, on=on)):
        for number, (got, wanted) in enumerate(zip([*mine, end], [*seen, weights], strict=True)):
            act = acts[number].kind if number < len(acts) else "the end"
            for tensor, (a, b) in enumerate(zip(got, wanted, strict=True)):
                where = f"rank {rank}, {act} (#{number}), tensor {tensor}: "
                assert (a is None) == (b is None), where + f"{a} and {b}"
                if a is not None:
                    torch.testing.assert_close(
                        a, b, rtol=rtol, atol=atol, msg=lambda said, where=where: where + said
                    )


ANY = st.fixed_dictionaries(
    {"stage": st.sampled_from([1, 2, 3]), "bucket_mb": st.sampled_from([1e-5, 3e-4, 4])}
)


@settings(FIXED, max_examples=40)
@given(drawn.programs(), st.integers(1, 4), ANY)
def test_any_program_on_the_imagined_cluster(program, ranks, settings):
    required_same_play(program, ranks, switched(ranks), settings)


def like_masters(comm, stage):
    """Half-type weights [trained by float32 shards], and the same by hand on one process."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7)).bfloat16()
    masters = [p.detach().float() for p in net.parameters()]
    serial, trained = torch.optim.Adam(masters, lr=0.01), Sharded(net, comm, stage=stage)
    optimizer = trained.optimizer(torch.optim.Adam, lr=0.01)
    for step in range(5):
        x = programs.rows(step, 8)[0].bfloat16().tensor_split(comm.size)[comm.rank]
        optimizer.zero_grad()
        trained(x).square().mean().backward()
        for master, gradient in zip(masters, whole_gradients(trained), strict=True):
            master.grad = gradient.view_as(master).float()
        optimizer.step(), serial.step()
    ended = trained.state_dict()
    return [(a, b, c.dtype) for a, b, c in zip(ended.values(), masters, trained.shards.values())]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_half_types_are_rounded_from_float32(stage):
    for mine in run(like_masters, 3, stage):
        for weights, by_hand, dtype in mine:
            assert dtype == weights.dtype == torch.float32
            torch.testing.assert_close(weights, by_hand, rtol=1e-6, atol=1e-7)


def drops_out_early(comm, stage):
    net = Sharded(programs.Net(), comm, stage=stage, **({} if stage == 3 else {"bucket_mb": 1e-4}))
    optimizer = net.optimizer(torch.optim.SGD, lr=0.1)
    for step in range(2 if comm.rank == 2 else 5):
        x, y = (part.tensor_split(comm.size)[comm.rank] for part in programs.rows(step))
        optimizer.zero_grad()
        programs.plain(net, optimizer, None, step, x, y)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_rank_that_stops_early_is_named(stage):
    with pytest.raises(RankError, match="rank 2 has returned from its function while rank"):
        run(drops_out_early, 3, stage)


def is_killed(comm, stage):
    net = Sharded(programs.Net(), comm, stage=stage)
    if comm.rank == 1:
        net.module.block.inner.register_forward_hook(lambda *_: os._exit(3))
    programs.loss_of(net, *programs.rows(0), 1).backward()


@pytest.mark.parametrize("stage", [1, 3])
def test_a_rank_that_is_killed_is_named(stage):
    with pytest.raises(RankError, match="rank 1 "):
        run(is_killed, 3, stage)


def not_finite(comm, stage):
    net, (x, y) = Sharded(programs.Net(), comm, stage=stage), programs.rows(0)
    net.module.last.bias.register_hook(lambda g: g * (float("nan") if comm.rank == 1 else 1.0))
    with pytest.raises(FloatingPointError) as told:
        programs.loss_of(net, x, y, 1).backward()
    return str(told.value)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_who_has_a_gradient_that_is_not_finite(stage):
    sentence = "gradients must be finite; these are not: last.bias on rank 1"
    assert run(not_finite, 3, stage) == [sentence] * 3


def refused(comm, wrong):
    """What is wrong is refused on every rank, in the same words but for its number."""
    return [said(comm, *one) for one in wrong]


def said(comm, call, kind):
    with pytest.raises(kind) as told:
        call(comm)
    return str(told.value)


def other_models(comm):
    Sharded(nn.Linear(2, 2 + comm.rank), comm)


def other_units(comm):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    Sharded(net, comm, units=[net[comm.rank]])


def other_stages(comm):
    Sharded(nn.Linear(2, 2), comm, stage=1 + comm.rank)


def other_buckets(comm):
    Sharded(nn.Linear(2, 2), comm, stage=2, bucket_mb=1 + comm.rank)


def twice(comm):
    Sharded(Sharded(nn.Linear(2, 2), comm), comm)


def its_parameters(comm):
    torch.optim.Adam(Sharded(nn.Linear(2, 2), comm).parameters())


def lars(comm):
    Sharded(nn.Linear(2, 2), comm).optimizer(LARS, lr=0.1)


def copied(comm):
    copy.deepcopy(Sharded(nn.Linear(2, 2), comm))


def beside_its_forward(comm):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    Sharded(net, comm)
    nn.functional.linear(torch.ones(1, 2), net[1].weight)


def cast(comm):
    net = Sharded(nn.Linear(2, 2), comm, stage=2)
    net.module.double()
    net(torch.ones(1, 2, dtype=torch.float64))


def part_cast(comm):
    net = Sharded(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), comm, stage=2, bucket_mb=1e-6)
    net.module[0].double()
    net(torch.ones(1, 2))


def changed_before_backward(comm):
    net = Sharded(nn.Linear(2, 2), comm)
    optimizer, x = net.optimizer(torch.optim.SGD, lr=0.1), torch.ones(1, 2, requires_grad=True)
    out = net(x)
    optimizer.step()
    out.sum().backward()


WRONG = [
    (other_models, ValueError, "models must be equal on all ranks: tensor 0 is weight "),
    (
        other_units,
        ValueError,
        "Sharded needs the same stage, bucket_mb and units on all ranks, not",
    ),
    (other_stages, ValueError, "Sharded needs the same stage, bucket_mb and units on all ranks, "),
    (other_buckets, ValueError, "Sharded needs the same stage, bucket_mb and units on all ranks, "),
    (twice, ValueError, "Sharded goes round a module once, not round another one"),
    (lambda comm: Sharded(nn.Linear(1, 1), comm, stage=4), ValueError, "stage must be 1, 2 or 3"),
    (
        lambda comm: Sharded(nn.Linear(1, 1), comm, stage=1, units=[]),
        ValueError,
        "units are gather",
    ),
    (lambda comm: Sharded(nn.Linear(1, 1), comm, bucket_mb=0), ValueError, "a bucket holds more"),
    (lambda comm: Sharded(nn.ReLU(), comm), ValueError, "there is nothing to shard"),
    (its_parameters, RuntimeError, "parameters of Sharded have no gradients: net.optimizer"),
    (lars, ValueError, "this optimizer needs whole tensors"),
    (copied, RuntimeError, "Sharded cannot be copied"),
    (beside_its_forward, RuntimeError, "rank 0: weights of unit '1' have values only within"),
    (cast, RuntimeError, "rank 0: bias was cast, moved or assigned"),
    (part_cast, RuntimeError, "rank 0: 0.bias was cast, moved or assigned"),
    (changed_before_backward, RuntimeError, "one of the variables needed for gradient computation"),
]


def test_what_is_wrong_is_refused():
    for sentences in run(refused, 2, [one[:2] for one in WRONG])[:1]:
        for sentence, (_, _, begins) in zip(sentences, WRONG, strict=True):
            assert sentence.startswith(begins)


def goes_its_own_way(comm):
    net = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    wrapped = Sharded(Ways(net), comm)
    wrapped(torch.ones(1, 2), comm.rank).sum().backward()


class Ways(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, x, way):
        return self.parts[2](self.parts[way](x))


@pytest.mark.parametrize("checked", [True, False])
def test_ranks_that_call_other_layers_are_told(checked):
    sentence = (
        r"rank 0 is in gather #1 .*unit parts.0.; rank 1 is in gather #1 .*unit parts.1"
        if checked
        else "through the units of stage 3 in different"
    )
    with pytest.raises(RankError, match=sentence):
        run(goes_its_own_way, 2, checked=checked)


def clipped_at(comm, norms):
    """By how much each of `norms` as the largest one scales this rank's gradients."""
    net, factors = Sharded(nn.Linear(2, 2), comm, stage=2), []
    for most in norms:
        net.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        before = [shard.grad.clone() for shard in net.shards.values() if len(shard)]
        net.clip_grad_norm_(most)
        after = [shard.grad for shard in net.shards.values() if len(shard)]
        factors.append(round((after[0] / before[0]).mean().item(), 4))
    return factors


def test_a_gradient_that_is_short_enough_stays_as_it_is():
    """The norm is the square root of 6: four weights and two biases have 1."""
    assert run(clipped_at, 2, [100.0, 6**0.5 / 2]) == [[1.0, 0.5]] * 2


def cleared(comm):
    """Gradients after zero_grad, of shards and of what was only gathered, and after a backward."""
    net, said = Sharded(nn.Linear(2, 2), comm, stage=2), []
    x = torch.ones(1, 2)
    for to_none in False, True:
        net(x).sum().backward()
        net.zero_grad(set_to_none=to_none)
        said.append([None if s.grad is None else s.grad.abs().sum().item()
                     for s in net.shards.values()])  # fmt: skip
    with net.no_sync():
        net(x).sum().backward()
    net.zero_grad()
    net(x).sum().backward()
    return said, round(net.grad_norm().item() ** 2, 4)


def test_gradients_are_cleared():
    """Those that were gathered within no_sync, too; of four weights and two biases each has 1."""
    assert run(cleared, 2) == [([[0.0, 0.0], [None, None]], 6.0)] * 2


def groups(comm):
    net = Sharded(programs.Net(), comm, stage=2)
    optimizer = net.optimizer(
        torch.optim.SGD, lambda name, p: {"weight_decay": 0.0} if p.dim() < 2 else {}, lr=0.1,
        weight_decay=0.1,
    )  # fmt: skip
    return [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]


def test_options_of_single_parameters():
    many = len([p for p in programs.Net().parameters() if p.dim() >= 2])
    few = len(list(programs.Net().parameters())) - many
    assert run(groups, 2) == [[(0.0, few), (0.1, many)]] * 2
