import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from course.learning.training.large_batch import (
    LAMB,
    LARS,
    groups,
    linear_decay,
    linear_scaled,
    sqrt_scaled,
    warm_up,
)


def weights(*numbers, grad=None, dtype=torch.float64):
    x = torch.tensor(numbers, dtype=dtype, requires_grad=True)
    x.grad = None if grad is None else torch.tensor(grad, dtype=dtype)
    return x


def close(x, expected, **tolerance):
    torch.testing.assert_close(x.detach(), torch.tensor(expected, dtype=x.dtype), **tolerance)


# Rates


def test_the_rates_of_larger_batches():
    assert linear_scaled(0.1, 8192) == pytest.approx(3.2)
    assert linear_scaled(0.2, 8192) == pytest.approx(6.4)
    assert sqrt_scaled(0.1, 1024, reference=64) == pytest.approx(0.4)


def test_the_warm_up_of_the_paper():
    """782 iterations from 0.1 to 3.2 add 0.003964 each."""
    rate = warm_up(0.1, 3.2, 782)
    assert rate(0) == 0.1 and rate(782) == rate(10_000) == pytest.approx(3.2)
    assert rate(1) - rate(0) == pytest.approx(0.003964, abs=5e-7)
    with pytest.raises(ValueError, match="^a warm-up takes at least 1 step, not 0$"):
        warm_up(0.1, 3.2, 0)


def test_a_rate_that_decays_by_equal_amounts_after_its_warm_up():
    rate = linear_decay(2.0, 6, warm=2, first=1.0)
    assert [rate(t) for t in range(7)] == [1.0, 1.5, 2.0, 1.5, 1.0, 0.5, 0.0]
    rate = linear_decay(2.0, 4)
    assert [rate(t) for t in range(5)] == [2.0, 1.5, 1.0, 0.5, 0.0]


# Golden steps


def test_a_step_of_lars():
    w = weights(3.0, 4.0, grad=[0.6, 0.8])
    LARS([w], lr=1.0, weight_decay=1e-4, trust=0.001).step()
    close(w, [2.997, 3.996], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_relative_step_is_the_trust_whatever_the_gradients_scale(scale):
    w = weights(3.0, 4.0, grad=[0.6 * scale, 0.8 * scale])
    LARS([w], lr=1.0, trust=0.01).step()
    close(w, [2.97, 3.96], rtol=0, atol=1e-12)


def test_a_step_of_lamb():
    w = weights(3.0, 4.0, grad=[0.6, 0.8])
    LAMB([w], weight_decay=0.01).step()
    close(w, [2.99648159, 3.99644743], rtol=0, atol=1e-8)


def at_rates(x, rates, gradients, **options):
    """`x` after a step of LARS, without its local rates, at each rate and gradient."""
    optimizer = LARS([x], lr=0.0, trust=None, **options)
    for rate, gradient in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        x.grad = None if gradient is None else torch.full_like(x, gradient)
        optimizer.step()
    return x


@pytest.mark.parametrize("corrected, expected", [(False, 1.1), (True, 2.0)])
def test_momentum_correction(corrected, expected):
    """v = 1, m = 0.9, the rate goes from 0.1 to 0.2, g = 1: w = -1 - v."""
    w = at_rates(weights(0.0), [0.1, 0.2], [10.0, 1.0], corrected=corrected)
    close(w, [-1.0 - expected])


def test_a_corrected_warm_up_may_begin_at_rate_zero():
    """What was gathered while the rate was 0 counts from the next step on, as in torch's SGD."""
    w = at_rates(weights(0.0), [0.0, 0.5, 0.0, 1.0], [1.0] * 4, momentum=0.5, corrected=True)
    close(w, [-0.5 * 1.5 - 1.0 * 1.875])


def test_a_parameter_without_a_gradient_for_a_step_is_corrected_by_its_own_last_rate():
    w = at_rates(weights(0.0), [1.0, 0.5, 0.25], [1.0, None, 1.0], corrected=True)
    close(w, [-1.0 - (0.9 * 0.25 / 1.0 + 0.25)])


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_complex_weights_step_as_their_real_and_imaginary_parts(kind):
    """torch's Adam takes them so; |g|^2 would give both parts one scale, g^2 none at all."""
    parts = weights(1.0, 1.0, 2.0, -1.0, grad=[0.0, 1.0, 1.0, 3.0])
    whole = torch.view_as_complex(parts.detach().clone().view(2, 2)).requires_grad_()
    whole.grad = torch.view_as_complex(parts.grad.clone().view(2, 2)).conj_physical().conj()
    for x in (parts, whole):
        kind([x], lr=0.1, weight_decay=0.01).step()
    close(torch.view_as_real(whole.detach()).flatten(), parts.tolist())


# Against others' optimisers, on a net


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)).double()


def walk(module, optimizer, steps, rates=None):
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        x = torch.randn(7, 6, generator=generator, dtype=torch.float64)
        for group in optimizer.param_groups:
            group["lr"] = rates(step) if rates else group["lr"]
        optimizer.zero_grad()
        (module(x) ** 2).mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in module.parameters()]


def test_without_trust_and_corrected_it_is_torchs_sgd():
    rates = warm_up(0.01, 0.3, 5)
    ours, theirs = net(), net()
    mine = walk(ours, LARS(ours.parameters(), 0.1, weight_decay=0.01, trust=None, corrected=True),
                9, rates)  # fmt: skip
    sgd = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9, weight_decay=0.01)
    for a, b in zip(mine, walk(theirs, sgd, 9, rates), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_without_adaptation_lamb_is_adam():
    ours, theirs = net(), net()
    mine = walk(ours, LAMB(ours.parameters(), 0.01, adapt=False), 9)
    adam = torch.optim.Adam(theirs.parameters(), 0.01, eps=1e-6)
    for a, b in zip(mine, walk(theirs, adam, 9), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_a_saved_walk_goes_on_as_if_never_saved(kind):
    module = net()
    optimizer = kind(groups(module, 0.01), lr=0.1, **({"corrected": True} if kind is LARS else {}))
    walk(module, optimizer, 3)
    saved = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    expected = walk(module, optimizer, 3, warm_up(0.1, 0.5, 3))
    other = net(seed=5)
    again = kind(groups(other, 0.01), lr=7.0)
    other.load_state_dict(saved[0]), again.load_state_dict(saved[1])
    for a, b in zip(expected, walk(other, again, 3, warm_up(0.1, 0.5, 3)), strict=True):
        assert torch.equal(a, b)


# What others got wrong


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_weights_of_zero_are_not_frozen(kind):
    """google-research/simclr #27: a layer that begins at zero had a rate of zero for ever."""
    w = weights(0.0, 0.0, grad=[1.0, 2.0])
    kind([w], lr=0.1).step()
    assert (w < 0).all() and w.isfinite().all()


def test_without_decay_the_rate_is_still_the_layers_own():
    """PaddlePaddle #40892: weight decay 0 switched the whole ratio off."""
    w = weights(3.0, 4.0, grad=[6.0, 8.0])
    LARS([w], lr=1.0, weight_decay=0.0, trust=0.01).step()
    close(w, [2.97, 3.96])


def test_the_decay_is_in_the_step_and_in_the_divisor():
    """Decay in the divisor alone makes steps shorter and never shrinks a weight."""
    w = weights(3.0, 4.0, grad=[-4.0, 3.0])  # at a right angle to the weights
    LARS([w], lr=1.0, weight_decay=1.0, trust=0.5).step()
    close(w, [3.0 - 0.25 * (-4.0 + 3.0), 4.0 - 0.25 * (3.0 + 4.0)])


def test_the_velocity_keeps_the_local_rate_of_its_own_time():
    """With the local rate applied to the whole velocity a layer's past would be scaled anew."""
    w = weights(3.0, 4.0, grad=[0.6, 0.8])
    optimizer = LARS([w], lr=1.0, momentum=0.5, trust=0.1)
    optimizer.step()
    w.grad = torch.tensor([600.0, 800.0], dtype=torch.float64)
    optimizer.step()
    close(w, [3 * (0.9 - 0.09 - 0.05), 4 * (0.9 - 0.09 - 0.05)])


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_a_gradient_of_next_to_nothing_moves_next_to_nothing(kind):
    """Without a floor under the divisor rounding errors would be blown up to a full step."""
    w = weights(3.0, 4.0, grad=[6e-19, 8e-19])
    kind([w], lr=1.0).step()
    assert (w.detach() - torch.tensor([3.0, 4.0])).abs().max() < 1e-3


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_a_gradient_of_zero_moves_nothing(kind):
    w = weights(3.0, 4.0, grad=[0.0, 0.0])
    kind([w], lr=1.0).step()
    close(w, [3.0, 4.0])


def test_without_momentum_nothing_is_kept():
    """A velocity that is kept although nobody uses it costs memory and leaks into later steps."""
    w = weights(3.0, 4.0, grad=[0.6, 0.8])
    optimizer = LARS([w], lr=1.0, momentum=0.0, trust=0.1)
    optimizer.step(), optimizer.step()
    assert not optimizer.state[w]
    close(w, [3 * 0.81, 4 * 0.81])


def test_biases_and_norms_two_switches():
    module = net()
    made = groups(module, 0.3, decayed=("weight", "norm"), adapted=("weight", "bias"))
    told = [(len(g["params"]), g["weight_decay"], g["adapt"]) for g in made]
    assert told == [(2, 0.3, True), (2, 0.0, True), (2, 0.3, False)]
    assert made[2]["params"][0] is module[1].weight
    with pytest.raises(ValueError, match="one of weight, bias, norm, not 'biases'$"):
        groups(module, 0.3, decayed=("biases",))


def kinds(module):
    """{parameter: its kind} as `groups` tells them apart."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    made = groups(module, 0.1, decayed=("weight",), adapted=("weight", "bias"))
    told = {(0.1, True): "weight", (0.0, True): "bias", (0.0, False): "norm"}
    return {names[p]: told[g["weight_decay"], g["adapt"]] for g in made for p in g["params"]}


def test_biases_of_every_name_are_biases():
    """`bias_ih_l0` of an LSTM and `in_proj_bias` of attention were decayed, as weights."""
    nets = nn.LSTM(2, 2, bidirectional=True), nn.GRU(2, 2), nn.RNN(2, 2), nn.Bilinear(1, 1, 1)
    nets += (nn.MultiheadAttention(4, 2, add_bias_kv=True), nn.TransformerEncoderLayer(4, 1, 4))
    for module in nets:
        for name, kind in kinds(module).items():
            expected = "norm" if "norm" in name else "bias" if "bias" in name else "weight"
            assert kind == expected, name


def test_what_is_parametrized_keeps_its_kind():
    linear = parametrizations.weight_norm(parametrizations.orthogonal(nn.Linear(2, 2), "weight"))
    parametrize.register_parametrization(linear, "bias", nn.Tanh())
    norm = parametrize.register_parametrization(nn.LayerNorm(2), "weight", nn.Softplus())
    told = kinds(nn.ModuleDict({"bias": linear, "scale": norm}))
    by_kind = {kind: [name for name in told if told[name] == kind] for kind in told.values()}
    assert by_kind["bias"] == ["bias.parametrizations.bias.original"]
    assert sorted(by_kind["norm"]) == ["scale.bias", "scale.parametrizations.weight.original"]


def test_a_group_that_is_not_adapted_steps_as_sgd():
    w = weights(3.0, 4.0, grad=[0.6, 0.8])
    LARS([{"params": [w], "adapt": False}], lr=1.0).step()
    close(w, [2.4, 3.2])


@pytest.mark.parametrize("kind", [LARS, LAMB])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_half_precision_do_not_overflow(kind, dtype):
    w = torch.full((5000,), 1000.0, dtype=dtype, requires_grad=True)
    w.grad = torch.full_like(w, 100.0)
    kind([w], lr=0.1, **({"trust": 1.0} if kind is LARS else {})).step()
    close(w.float(), [900.0] * 5000, rtol=0.01, atol=0)


@pytest.mark.parametrize("kind", [LARS, LAMB])
def test_empty_missing_and_strided(kind):
    empty, idle = torch.zeros(0, requires_grad=True), weights(1.0)
    strided = torch.full((3, 4), 2.0).t().requires_grad_()
    empty.grad, strided.grad = torch.zeros(0), torch.ones(4, 3)
    kind([empty, idle, strided], lr=0.5).step()
    close(idle, [1.0])
    assert (strided < 2).all() and len(strided.unique()) == 1


def test_a_closure_gives_the_loss():
    w = weights(3.0, 4.0)

    def closure():
        loss = (w**2).sum()
        loss.backward()
        return loss

    assert LAMB([w]).step(closure).item() == 25.0


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda w: LARS([w], lr=-1.0), "^lr must not be negative, but is -1.0$"),
        (lambda w: LARS([w], lr=1.0, momentum=-0.1), "^momentum must not be negative, but is -0.1"),
        (lambda w: LARS([w], lr=float("nan")), "^lr must not be negative, but is nan$"),
        (lambda w: LAMB([w], betas=(0.9, 1.0)), r"^betas lie from 0 to below 1, not \(0.9, 1.0\)$"),
    ],
)
def test_numbers_that_cannot_be(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(weights(1.0))


def test_a_sparse_gradient_is_refused():
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="^LARS has no step for a sparse gradient$"):
        LARS(table.parameters(), lr=0.1).step()
