"""The gate: golden values of the paper's formulas, ties, and derivatives."""

import pytest
import torch
from torch.nn.functional import softplus

from course.parallel.experts.gating import (
    EPSILON,
    LEAST_DEVIATION,
    NoisyTopKGate,
    chosen_probability,
    gates,
    squared_variation,
    top_experts,
)

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64)


def test_golden_values():
    found = gates(LOGITS, LOGITS, torch.ones_like(LOGITS), k=2)
    assert found.chosen.tolist() == [[0, 1]]
    expected = torch.tensor([[0.73105858, 0.26894142]], dtype=torch.float64)
    torch.testing.assert_close(found.weights, expected, rtol=0, atol=5e-9)
    torch.testing.assert_close(found.importance[:2], expected[0], rtol=0, atol=5e-9)
    expected = torch.tensor([0.97724987, 0.84134475, 0.15865525, 0.02275013], dtype=torch.float64)
    torch.testing.assert_close(found.load, expected, rtol=0, atol=5e-9)
    variation = squared_variation(torch.tensor([10.0, 6, 3, 1], dtype=torch.float64))
    assert float(variation) == pytest.approx(0.46, abs=1e-9)


def test_the_threshold_is_the_kth_largest_of_the_others():
    generator = torch.Generator().manual_seed(0)
    clean, noise = torch.randn(2, 20, 6, generator=generator, dtype=torch.float64)
    deviation = 0.5 + torch.rand(20, 6, generator=generator, dtype=torch.float64)
    noisy = clean + noise * deviation
    found = chosen_probability(clean, noisy, deviation, 2)
    for token in range(20):
        for expert in range(6):
            others = [float(noisy[token, i]) for i in range(6) if i != expert]
            distance = (clean[token, expert] - sorted(others)[-2]) / deviation[token, expert]
            phi = torch.distributions.Normal(0.0, 1.0).cdf(distance)
            assert float(found[token, expert]) == pytest.approx(float(phi), abs=1e-12)


def test_how_often_noise_that_is_drawn_again_chooses_an_expert():
    """P(x, i) is a probability: redraw the noise of one expert ten thousand times."""
    generator = torch.Generator().manual_seed(1)
    clean, noisy = LOGITS, LOGITS + 0.3
    again = noisy.repeat(10_000, 1)
    again[:, 2] = clean[0, 2] + torch.randn(10_000, generator=generator, dtype=torch.float64)
    often = (top_experts(again, 2) == 2).any(1).double().mean()
    found = chosen_probability(clean, noisy, torch.ones_like(clean), 2)[0, 2]
    assert float(often) == pytest.approx(float(found), abs=0.01)


def test_of_equal_logits_the_lower_number_wins():
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]).repeat(40, 1)
    assert top_experts(logits, 2)[:2].tolist() == [[1, 2], [0, 1]]
    assert top_experts(logits, 2)[-2:].tolist() == [[1, 2], [0, 1]]


def test_the_largest_comes_first_and_a_strided_tensor_is_no_other():
    logits = torch.randn(6, 12, generator=torch.Generator().manual_seed(0)).t()[::2]
    assert torch.equal(top_experts(logits, 3), logits.topk(3, dim=1).indices)


def test_a_gate_that_has_not_learned_yet_leaves_the_choice_to_noise():
    gate = NoisyTopKGate(3, 8, k=2)
    x = torch.ones(400, 3)
    torch.manual_seed(0)
    assert gate(x).chosen.unique().numel() == 8
    noise = torch.randn(400, 8)
    assert torch.equal(gate(x, noise).chosen, top_experts(noise, 2))
    gate.eval()
    assert gate(x).chosen.unique().tolist() == [0, 1]
    assert gate(x).load.tolist() == [400, 400, *[0] * 6]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_derivatives_are_those_of_differences(k):
    """With respect to the input and both matrices; where all are chosen, load has none."""
    torch.manual_seed(0)
    gate = NoisyTopKGate(3, 4, k=k, dtype=torch.float64)
    noise = torch.randn(5, 4, dtype=torch.float64)
    parts = [torch.randn(shape, dtype=torch.float64).requires_grad_()
             for shape in ((5, 3), (3, 4), (3, 4))]  # fmt: skip

    def losses(x, weight, noise_weight):
        values = {"weight": weight, "noise_weight": noise_weight}
        found = torch.func.functional_call(gate, values, (x, noise))
        return found.weights, squared_variation(found.importance), found.load

    assert torch.autograd.gradcheck(losses, parts)


def test_the_deviation_of_the_noise_is_learned():
    torch.manual_seed(0)
    gate = NoisyTopKGate(3, 4, dtype=torch.float64)
    gate.weight.data.normal_()
    gate.noise_weight.data.normal_()
    x, noise = torch.randn(6, 3).double(), torch.randn(6, 4).double()
    noisy = x @ gate.weight + noise * (softplus(x @ gate.noise_weight) + LEAST_DEVIATION)
    found = gate(x, noise)
    assert torch.equal(found.chosen, top_experts(noisy, 2)) and LEAST_DEVIATION == 0.01
    torch.testing.assert_close(found.weights, noisy.topk(2).values.softmax(1), rtol=1e-12, atol=0)


def test_no_token_is_no_division_by_zero():
    gate = NoisyTopKGate(3, 4)
    found = gate(torch.ones(0, 3))
    assert found.chosen.shape == (0, 2) and found.load.tolist() == [0] * 4
    assert squared_variation(found.load).item() == 0 < EPSILON


def test_more_experts_than_there_are_cannot_see_a_token():
    with pytest.raises(ValueError, match="a token goes to k experts of all: k 5 of 4 cannot be"):
        NoisyTopKGate(3, 4, k=5)
    with pytest.raises(ValueError, match="k is a whole number, 1 or more, not 0"):
        NoisyTopKGate(3, 4, k=0)


def test_what_is_not_a_number_is_refused():
    gate = NoisyTopKGate(3, 4)
    with pytest.raises(ValueError, match="logits of a gate are numbers, and some are nan"):
        gate(torch.full((2, 3), torch.nan))
    with pytest.raises(ValueError, match=r"a number for every token and expert: \[2, 4\], not"):
        gate(torch.ones(2, 3), torch.ones(2, 3))


def test_weights_may_have_more_digits_than_logits(monkeypatch):
    """Under autocast a GPU makes every softmax float32, and the gate failed in evaluation."""
    softmax = torch.Tensor.softmax
    monkeypatch.setattr(torch.Tensor, "softmax", lambda x, dim: softmax(x.float(), dim))
    gate = NoisyTopKGate(3, 4, dtype=torch.bfloat16).eval()
    found = gate(torch.ones(300, 3, dtype=torch.bfloat16))
    assert found.importance.dtype == found.load.dtype == torch.float32
    assert found.load.tolist() == [300, 300, 0, 0]
