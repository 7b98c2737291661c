"""A program that is right under torch's DDP is right here, or refused by a sentence.

Each program takes `wrap` (DataParallel, or nothing) and `mine` (a rank's rows of a tensor, or all)
and gives gradients; on ranks they are those of one process with all rows.
"""

import copy
import functools
import io
import pickle

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.parallel.data.data_parallel import DataParallel
from course.worlds import RankError, run
from tests.parallel.data import drawn
from tests.worlds.simulator.clusters import switched


def rows(n=8, width=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator, dtype=torch.float64)


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b = nn.Linear(5, 4).double(), nn.Linear(4, 5).double()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def encode(self, x):
        return torch.tanh(self.a(x))

    def forward(self, x, both=True):
        x = self.encode(x)
        return self.b(x) * self.scale if both else x


def bare(module):
    return getattr(module, "module", module)


def gradients(*modules):
    return [p.grad for module in modules for p in bare(module).parameters()]


def on_ranks(comm, program, cut, options):
    """The program's gradients on one rank, which has the rows that `cut` gives it."""
    wrap = functools.partial(DataParallel, comm=comm, bucket_mb=1e-4, **options)
    return program(wrap, lambda x: cut(x, comm.rank, comm.size))


def evenly(x, rank, size):
    return x.tensor_split(size)[rank]


def unevenly(x, rank, size):
    """All but size - 1 rows are rank 0's."""
    return x.split([len(x) - size + 1] + [1] * (size - 1))[rank]


def serially(program):
    return program(lambda module: module, lambda x: x)


def required_serial(
    program, ranks=(1, 2, 3), cut=unevenly, serial=serially, on=switched, **options
):
    expected = serial(program)
    for size in ranks:
        for rank, mine in enumerate(run(on_ranks, size, program, cut, options, on=on(size))):
            for number, (a, b) in enumerate(zip(mine, expected, strict=True)):
                where = f"tensor {number} on rank {rank} of {size}: "
                assert (a is None) == (b is None), where + f"{a} and {b}"
                if a is not None:
                    torch.testing.assert_close(
                        a, b, rtol=1e-11, atol=1e-13, msg=lambda said, where=where: where + said
                    )


def refused(program, sentence, ranks=2, kind=RankError, cut=unevenly, **options):
    with pytest.raises(kind, match=sentence):
        run(on_ranks, ranks, program, cut, options, on=switched(ranks))


def half_square(x):
    return x.square().mean() / 2


# Backwards and forwards in any number


def retained(wrap, mine):
    net = wrap(Net())
    out = net(mine(rows()))
    half_square(out[:, :2]).backward(retain_graph=True)
    half_square(out[:, 2:]).backward()
    return gradients(net)


def two_forwards_two_backwards(wrap, mine):
    net = wrap(Net())
    real, fake = net(mine(rows())), net(2 * mine(rows(9, seed=2)))
    half_square(real).backward()
    half_square(fake - 1).backward()
    return gradients(net)


def two_forwards_one_backward(wrap, mine):
    net = wrap(Net())
    half_square(net(mine(rows())) - net(mine(rows(seed=2)))).backward()
    return gradients(net)


def regulariser_alone(wrap, mine):
    net = wrap(Net())
    half_square(net(mine(rows()))).backward()
    sum(p.square().sum() for p in net.parameters()).backward()
    return gradients(net)


def regulariser_with_the_loss(wrap, mine):
    net = wrap(Net())
    (half_square(net(mine(rows()))) + sum(p.square().sum() for p in net.parameters())).backward()
    return gradients(net)


def looked_at_first(wrap, mine):
    """Validation in grad mode, of many rows, on which nobody calls backward."""
    net = wrap(Net())
    net(rows(100 if len(mine(rows())) > 4 else 3))
    half_square(net(mine(rows()))).backward()
    return gradients(net)


def a_backward_for_nothing(wrap, mine):
    """Of the input alone: no parameter has a gradient, and nothing is sent."""
    net, x = wrap(Net()), mine(rows()).requires_grad_()
    torch.autograd.grad(net(x).sum(), x)
    half_square(net(x)).backward()
    return gradients(net)


def penalised(wrap, mine):
    """A penalty on the gradient of the input, as in WGAN-GP."""
    net, x = wrap(Net()), mine(rows()).requires_grad_()
    out = net(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (half_square(out) + (slope.norm(dim=1) - 1).square().mean()).backward()
    return gradients(net)


def on_top_of_the_last(wrap, mine):
    """No zero_grad between; the second does not use all parameters."""
    net = wrap(Net())
    half_square(net(mine(rows()))).backward()
    half_square(net(mine(rows(seed=2)), both=False)).backward()
    return gradients(net)


def rewrapped(wrap, mine):
    """The first wrapper is gone, and its hooks do nothing any more."""
    module = Net()
    for _ in range(2):
        net = wrap(module)
        net.zero_grad()
        half_square(net(mine(rows()))).backward()
    return gradients(net)


def shared_encoder(wrap, mine):
    """Two wrappers, of which one rests."""
    encoder = nn.Linear(5, 5).double()
    nn.init.eye_(encoder.weight), nn.init.ones_(encoder.bias)
    one, two = (wrap(nn.Sequential(encoder, Net(seed))) for seed in (0, 1))
    half_square(one(mine(rows()))).backward()
    half_square(two(mine(rows(9)))).backward()
    return gradients(one, two)


def shared_encoder_at_once(wrap, mine):
    encoder = nn.Linear(5, 5).double()
    nn.init.eye_(encoder.weight), nn.init.ones_(encoder.bias)
    one, two = (wrap(nn.Sequential(encoder, Net(seed))) for seed in (0, 1))
    (half_square(one(mine(rows()))) + half_square(two(mine(rows())))).backward()
    return gradients(one, two)


def adversaries(wrap, mine):
    """A GAN's steps: a backward of two models, one of one."""
    torch.manual_seed(0)
    g, d = wrap(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 5)).double()), wrap(Net())
    optimizers = [torch.optim.SGD(net.parameters(), 0.1, momentum=0.5) for net in (g, d)]
    for step in range(4):
        real, noise = mine(rows(5 + step % 2, seed=step)), mine(rows(5 + step % 2, seed=step + 9))
        d.zero_grad()
        half_square(d(real)).backward()
        fake = g(noise)
        half_square(1 - d(fake.detach())).backward()
        optimizers[1].step()
        g.zero_grad()
        half_square(d(fake)).backward()
        optimizers[0].step()
    return [p.detach() for net in (g, d) for p in net.parameters()]


PROGRAMS = (
    retained, two_forwards_two_backwards, two_forwards_one_backward, regulariser_alone,
    regulariser_with_the_loss, a_backward_for_nothing, penalised, on_top_of_the_last,
    rewrapped, shared_encoder, shared_encoder_at_once, adversaries,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_has_the_gradients_of_one_process(program):
    required_serial(program)


def test_who_looked_at_many_rows_counts_no_more():
    required_serial(looked_at_first, serial=lambda program: program(lambda net: net, lambda x: x))


def on_top_on_some_ranks(wrap, mine):
    """No zero_grad between; only the rank of the first row uses all parameters again."""
    net, x = wrap(Net()), mine(rows())
    half_square(net(x)).backward()
    half_square(net(x, both=bool((x[0] == rows()[0]).all()))).backward()
    return gradients(net)


def on_some_parts(program):
    net = Net()
    half_square(net(rows())).backward()
    for part, x in enumerate(rows().chunk(2)):
        (half_square(net(x, both=part == 0)) / 2).backward()
    return gradients(net)


def test_a_gradient_of_the_last_backward_is_kept_where_others_add_to_theirs():
    required_serial(on_top_on_some_ranks, (2,), cut=evenly, serial=on_some_parts)


def around_the_wrapper(wrap, mine):
    """Another method of the module than forward: it counts as once on every rank."""
    net = wrap(Net())
    half_square(bare(net).encode(mine(rows(6)))).backward()
    return gradients(net)


def test_a_backward_that_goes_through_no_forward_is_the_mean_over_ranks():
    required_serial(around_the_wrapper, cut=evenly)


def some_around_the_wrapper(wrap, mine):
    net, x = wrap(Net()), mine(rows())
    half_square((net if len(x) > 1 else net.module)(x)).backward()


def test_forwards_of_some_ranks_alone_are_refused():
    refused(
        some_around_the_wrapper, "the backward of 1 of 2 ranks went through no forward of the wr"
    )


# Accumulation


def quiet(net):
    return net.no_sync() if isinstance(net, DataParallel) else torch.enable_grad()


def in_pieces(wrap, mine):
    """All pieces have as many rows on a rank, and ranks have different ones."""
    net = wrap(Net())
    half_square(net(mine(rows(8, seed=7)))).backward()
    with quiet(net):
        for seed in (1, 2):
            half_square(net(mine(rows(8, seed=seed)))).backward()
    half_square(net(mine(rows(8, seed=3)), both=False)).backward()
    return gradients(net)


def in_shrinking_pieces(wrap, mine):
    """The pieces have different rows, the same on all ranks."""
    net = wrap(Net())
    with quiet(net):
        for seed in (1, 2):
            half_square(net(mine(rows(6 * seed, seed=seed)))).backward()
    half_square(net(mine(rows(6, seed=3)))).backward()
    return gradients(net)


def in_uneven_pieces_sent(wrap, mine):
    """Each piece is sent: then it counts by its own rows."""
    net, back = wrap(Net()), lambda x: mine(x.flip(0)).flip(0)
    half_square(net(mine(rows(8, seed=1)))).backward()
    half_square(net(back(rows(7, seed=2)))).backward()
    return gradients(net)


def in_uneven_pieces(wrap, mine):
    net, one = wrap(Net()), len(mine(rows(4))) == 1
    with quiet(net):
        half_square(net(rows(1 if one else 3))).backward()
    half_square(net(rows(3 if one else 1))).backward()


def thought_better_of(wrap, mine):
    """Gathered, then dropped by zero_grad; the next backward does not use all."""
    net = wrap(Net())
    with quiet(net):
        half_square(net(rows(3 if len(mine(rows())) > 4 else 9))).backward()
    net.zero_grad()
    half_square(net(mine(rows()), both=False)).backward()
    return gradients(net)


@pytest.mark.parametrize("program", [in_pieces, in_uneven_pieces_sent, thought_better_of])
def test_accumulation(program):
    required_serial(program)


def test_pieces_of_different_rows_alike_on_all_ranks():
    required_serial(in_shrinking_pieces, cut=evenly)


def test_pieces_whose_weights_cannot_be_known_are_refused():
    refused(in_uneven_pieces, r"no_sync\(\) had 3, 1 rows on rank 0 and 1, 3 on rank 1: their wei")


# Checkpointing


class InParts(nn.Module):
    """Its two parts are computed again in backward; `same` twice the same."""

    def __init__(self, reentrant, same=False):
        super().__init__()
        self.first, self.one, self.two = nn.Linear(5, 5).double(), Net(), Net(1)
        nn.init.eye_(self.first.weight), nn.init.ones_(self.first.bias)
        self.two = self.one if same else self.two
        self.reentrant = reentrant

    def forward(self, x):
        for part in (self.one, self.two):
            x = checkpoint(part, self.first(x), use_reentrant=self.reentrant)
        return x


def checkpointed(reentrant, same, wrap, mine):
    net = wrap(InParts(reentrant, same))
    for _ in range(2):
        net.zero_grad()
        half_square(net(mine(rows()))).backward()
    return gradients(net)


@pytest.mark.parametrize("reentrant, same", [(False, False), (False, True)])
def test_checkpoints(reentrant, same):
    required_serial(functools.partial(checkpointed, reentrant, same))


class Apart(InParts):
    """What is computed again has parameters that nothing else has."""

    def forward(self, x):
        x = self.first(x)
        for part in (self.one, self.two):
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return x


def checkpointed_apart(wrap, mine):
    net = wrap(Apart(reentrant=True))
    for _ in range(2):
        net.zero_grad()
        half_square(net(mine(rows()))).backward()
    return gradients(net)


def test_backwards_within_backward():
    required_serial(checkpointed_apart)


def wrapped_parts(wrap, mine):
    """A wrapper within each part: its whole backward is within the other."""
    one, two = wrap(Net()), wrap(Net(1))
    x = mine(rows()).requires_grad_()
    for net in (one, two, one):
        x = checkpoint(net, x, use_reentrant=True)
    half_square(x).backward()
    return gradients(one, two)


def test_a_wrapper_that_is_computed_again():
    required_serial(wrapped_parts)


def test_a_parameter_of_two_backwards_within_one_is_refused():
    program = functools.partial(checkpointed, True, True)
    refused(program, "came twice in one backward: .* needs checkpoint.use_reentrant=False")


# Two models


class Branches(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.main, self.extra = nn.Linear(5, 5).double(), nn.Linear(5, 5).double()

    def forward(self, x, extra):
        return self.main(x) + self.extra(x) if extra else self.main(x)


def twins(wrap, mine):
    """On the rank of the first row a branch of the second model is not used."""
    one, two = wrap(Branches(0)), wrap(Branches(1))
    x = mine(rows())
    first = bool((x[0] == rows()[0]).all()) and len(x) < 8
    (half_square(one(x, True)) + 100 * half_square(two(x, not first))).backward()
    return gradients(one, two)


def twins_serially(program):
    one, two = Branches(0), Branches(1)
    for rank, x in enumerate(rows().chunk(2)):
        ((half_square(one(x, True)) + 100 * half_square(two(x, rank > 0))) / 2).backward()
    return gradients(one, two)


@pytest.mark.parametrize("on", [switched, lambda ranks: None])
def test_models_in_another_order_on_another_rank(on):
    required_serial(twins, (2,), cut=evenly, serial=twins_serially, on=on)


def nested(wrap, mine):
    wrap(nn.Sequential(wrap(Net()), Net()))


def test_a_wrapper_round_another_is_refused():
    refused(nested, "DataParallel goes round a module once, not round another")


# Parameters that change


def unfrozen_later(wrap, mine):
    module = Net()
    module.a.requires_grad_(False)
    net = wrap(module)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(4):
        module.a.requires_grad_(step > 1)
        module.b.requires_grad_(step != 2)
        optimizer.zero_grad()
        half_square(net(mine(rows(seed=step)))).backward()
        optimizer.step()
    return [p.detach() for p in module.parameters()]


def cast_later(wrap, mine):
    net = wrap(Net().float())
    half_square(net(mine(rows()).float())).backward()
    net.double().zero_grad()
    half_square(net(mine(rows()))).backward()
    return gradients(net)


@pytest.mark.parametrize("program", [unfrozen_later, cast_later])
def test_a_model_that_changes_after_it_was_wrapped(program):
    required_serial(program)


def frozen_differently(wrap, mine):
    net = wrap(Net())
    if len(mine(rows())) == 1:
        bare(net).a.requires_grad_(False)
    half_square(net(mine(rows()))).backward()


def test_ranks_that_freeze_other_layers_later_are_refused():
    refused(frozen_differently, "is in |are in |waits|waited")


def replaced(wrap, mine):
    net = wrap(Net())
    net.load_state_dict(net.state_dict(), assign=True)
    half_square(net(mine(rows()))).backward()


def replaced_in_part(wrap, mine):
    net = wrap(Net())
    net.module.a = nn.Linear(5, 4).double()
    half_square(net(mine(rows()))).backward()


def test_parameters_that_were_replaced_are_refused():
    refused(replaced_in_part, "a.weight was replaced since its module was wrapped")
    refused(replaced, "was replaced since its module was wrapped")


# Kinds of parameters and gradients


def scaled(wrap, mine):
    net = wrap(Net())
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    for step in range(2):
        optimizer.zero_grad(set_to_none=step > 0)
        half_square(net(mine(rows()))).backward()
        assert bare(net).scale.grad.shape == ()
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def complexly(wrap, mine):
    torch.manual_seed(0)
    net = wrap(nn.Linear(5, 3, dtype=torch.complex128))
    net(mine(rows()).to(torch.complex128) * (1 + 2j)).abs().square().mean().backward()
    return gradients(net)


@pytest.mark.parametrize("program", [scaled, complexly])
def test_numbers_without_axes_and_complex_ones(program):
    required_serial(program)


def sparse(wrap, mine):
    wrap(nn.Embedding(10, 3, sparse=True))(mine(torch.arange(8))).square().mean().backward()


def differentiable(wrap, mine):
    half_square(wrap(Net())(mine(rows()))).backward(create_graph=True)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_that_cannot_be_averaged_are_refused():
    refused(sparse, "the gradient of weight is torch.sparse_coo, and must be dense: Embedding")
    refused(differentiable, "cannot be averaged and derived once more: take autograd.grad")


def in_halves(dtype, samples, wrap, mine):
    torch.manual_seed(0)
    net = wrap(nn.Linear(5, 2).to(dtype))
    x = mine(rows().to(dtype))
    (net(x, samples=samples) if samples else net(x)).float().square().mean().backward()
    return [p.grad.double() for p in net.parameters()]


@pytest.mark.parametrize("dtype, samples", [(torch.float16, 70000), (torch.bfloat16, 257)])
def test_half_types_of_many_samples(dtype, samples):
    program = functools.partial(in_halves, dtype, samples)
    expected = serially(functools.partial(in_halves, dtype, None))
    for mine in run(on_ranks, 2, program, evenly, {}, on=switched(2)):
        for a, b in zip(mine, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=3 * torch.finfo(dtype).eps, atol=1e-3)


def bias_of_weights(comm, n):
    """Relative error, on average, of the mean of equal bfloat16 gradients of n rows each."""
    torch.manual_seed(0)
    net = nn.Linear(400, 50, bias=False).bfloat16()
    wrapped, x = DataParallel(net, comm), rows(n, 400).bfloat16()
    (own,) = torch.autograd.grad(net(x).float().square().mean(), net.weight)
    wrapped(x).float().square().mean().backward()
    ratio = net.weight.grad.float() / own.float()
    return ratio[own.abs() > 1e-6].mean().item() - 1


@pytest.mark.parametrize("n", [256, 257, 513])
def test_weights_are_not_rounded_to_eight_bits(n):
    assert abs(run(bias_of_weights, 2, n, on=switched(2))[0]) < 5e-4


def many_dtypes(wrap, mine):
    torch.manual_seed(0)
    parts = nn.ModuleList([nn.Linear(5, 4), nn.Linear(4, 3).double(), nn.Linear(3, 2)])
    net = wrap(parts)
    bare(net).forward = lambda x: parts[2](parts[1](parts[0](x.float()).double()).float())
    for _ in range(2):
        net.zero_grad()
        net(mine(rows())).square().mean().backward()
    return [p.grad.double() for p in parts.parameters()]


def test_several_dtypes():
    expected = serially(many_dtypes)
    for mine in run(on_ranks, 3, many_dtypes, unevenly, {}, on=switched(3)):
        for a, b in zip(mine, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


# Hooks


def seen_by_a_hook(wrap, mine):
    net, seen = wrap(Net()), []
    bare(net).scale.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    half_square(net(mine(rows()))).backward()
    return [len(seen) - torch.ones(()), *gradients(net)]


def stepped_by_a_hook(wrap, mine):
    net = wrap(Net())

    def step(parameter):
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad

    bare(net).a.weight.register_post_accumulate_grad_hook(step)
    half_square(net(mine(rows()))).backward()


def cleared_by_a_hook(wrap, mine):
    net = wrap(Net())

    def clear(parameter):
        parameter.grad = None

    bare(net).a.weight.register_post_accumulate_grad_hook(clear)
    half_square(net(mine(rows()))).backward()


def test_hooks_look_and_do_not_change():
    required_serial(seen_by_a_hook)
    refused(stepped_by_a_hook, "rank .: a.weight or its gradient was changed, by a hook for inst")
    refused(cleared_by_a_hook, "rank .: a.weight or its gradient was changed, by a hook for inst")


# Numbers that are not finite


def overflowing(wrap, mine):
    """The scales of a GradScaler that begins too high, and the weights after it."""
    torch.manual_seed(0)
    net = wrap(nn.Linear(5, 2))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = net(100 * mine(rows()).float()).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [torch.tensor(scaler.get_scale()), *(p.detach() for p in net.parameters())]


def test_a_scaler_finds_its_scale():
    expected = serially(overflowing)
    results = run(on_ranks, 2, overflowing, evenly, {"require_finite": False}, on=switched(2))
    for mine in results:
        assert mine[0] == expected[0] < 2**17
        for a, b in zip(mine, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
    refused(overflowing, "FloatingPointError: gradients must be finite", cut=evenly)


# Copies


def copied(wrap, mine):
    net, stored = wrap(Net()), io.BytesIO()
    torch.save(net, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net)), loaded]
    for other in copies:
        with torch.no_grad():
            assert torch.equal(other(rows()), net(rows()))
        assert other.state_dict().keys() == net.state_dict().keys()
    half_square(net(mine(rows()))).backward()
    return gradients(net)


def averaged(wrap, mine):
    """An exponential mean of the weights beside them."""
    net = wrap(Net())
    mean = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        half_square(net(mine(rows(seed=step)))).backward()
        optimizer.step()
        mean.update_parameters(net)
    return [p.detach() for p in mean.parameters()]


def trained_copy(wrap, mine):
    half_square(copy.deepcopy(wrap(Net()))(mine(rows()))).backward()


def test_copies():
    required_serial(copied)
    required_serial(averaged)
    refused(trained_copy, "is a copy, or was loaded, and its gradients are not averaged: train Da")


def test_a_wrapper_may_be_returned():
    one, two = run(lambda comm: DataParallel(Net(comm.rank), comm), 2)
    assert torch.equal(one(rows()), two(rows()))


@pytest.mark.parametrize("backend", ["eager"])
@pytest.mark.parametrize("outside", [False, True])
def test_compiled(backend, outside):
    compiled = functools.partial(compiled_net, backend, outside)
    required_serial(compiled, (2,), on=lambda ranks: None)


def compiled_net(backend, outside, wrap, mine):
    net = Net()
    make = functools.partial(torch.compile, backend=backend)
    net = make(wrap(net)) if outside else wrap(make(net))
    for _ in range(2):
        net.zero_grad()
        half_square(net(mine(rows()))).backward()
    return [p.grad for p in net.parameters()]


# Any net and any program


def required_same_play(program, ranks, on, options):
    parts, acts = program
    seen, weights = drawn.play(parts, acts)
    rtol, atol = (1e-3, 1e-5) if "single" in parts else (1e-9, 1e-11)
    results = run(lambda comm: drawn.play(parts, acts, comm, **options), ranks, on=on)
    for rank, (mine, end) in enumerate(results):
        for number, (got, expected) in enumerate(zip([*mine, end], [*seen, weights], strict=True)):
            act = acts[number].kind if number < len(acts) else "the end"
            for tensor, (a, b) in enumerate(zip(got, expected, strict=True)):
                where = f"rank {rank}, {act} (#{number}), tensor {tensor}: "
                assert (a is None) == (b is None), where + f"{a} and {b}"
                if a is not None:
                    torch.testing.assert_close(
                        a, b, rtol=rtol, atol=atol, msg=lambda said, where=where: where + said
                    )


OPTIONS = st.fixed_dictionaries(
    {"bucket_mb": st.sampled_from([1e-5, 3e-4, 4]),
     "algorithm": st.sampled_from(["ring", "tree", "flat", "halving_doubling"])}
)  # fmt: skip
FIXED = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # to make an example smaller may take minutes
)  # fmt: skip


@settings(FIXED, max_examples=60)
@given(drawn.programs(), st.integers(1, 4), OPTIONS)
def test_any_program_on_the_imagined_cluster(program, ranks, options):
    required_same_play(program, ranks, switched(ranks), options)


@settings(FIXED, max_examples=4)
@given(drawn.programs(), st.integers(2, 3), OPTIONS)
def test_any_program_on_processes(program, ranks, options):
    required_same_play(program, ranks, None, options)
