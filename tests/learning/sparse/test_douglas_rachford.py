"""Steps of Douglas-Rachford splitting, the weights of settled atoms, and their certificate."""

import warnings

import pytest
import torch
from sklearn.decomposition import sparse_encode

from course.learning.sparse import douglas_rachford
from course.learning.sparse.douglas_rachford import (
    DouglasRachford,
    certificate,
    homotopy,
    soft_threshold,
    solve,
)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def problem(count=12, atoms=6, pixels=8, strength=6.0):
    dictionary = drawn(atoms, pixels, seed=1)
    return strength * drawn(count, pixels), dictionary / dictionary.norm(dim=1, keepdim=True)


def objective(patches, dictionary, codes):
    return (patches - codes @ dictionary).square().sum(dim=1) / 2 + codes.abs().sum(dim=1)


def best(patches, dictionary, positive=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap of 1e-14 ||x||^2 cannot always be reached
        return torch.from_numpy(sparse_encode(
            patches.numpy(), dictionary.numpy(), algorithm="lasso_cd", alpha=1.0,
            positive=positive, max_iter=20_000,
        ))  # fmt: skip


def test_the_soft_threshold_moves_towards_zero_and_not_past_it():
    values = torch.tensor([-3.0, -1, -0.5, 0, 0.5, 1, 3])
    assert soft_threshold(values, 1).tolist() == [-2, 0, 0, 0, 0, 0, 2]
    assert soft_threshold(values, 1, positive=True).tolist() == [0, 0, 0, 0, 0, 0, 2]
    thresholds = torch.tensor([[0.5], [2.0]])
    assert soft_threshold(values[-2:].expand(2, 2), thresholds).tolist() == [[0.5, 2.5], [0, 1]]


def told(codes, correlation, squared, positive=False):
    rows = [torch.tensor([x], dtype=torch.float64) for x in (codes, correlation)]
    kkt, gap = certificate(*rows, torch.tensor([squared]).double(), 1.0, positive)
    return kkt.item(), gap.item()


def test_a_certificate_by_hand():
    """One patch [3] and the atom [1] have the code 2; the objective is z + (3 - z)^2 / 2."""
    assert told([2.0], [1.0], 1.0) == (0, 0)
    assert told([1.0], [2.0], 4.0)[0] == 1  # too small: the pull is 2, not 1
    assert told([3.0], [0.0], 0.0) == (1, 3)  # 3 above 0, where 2.5 is the least
    assert told([0.0], [3.0], 9.0)[0] == 2 and told([0.0], [3.0], 9.0)[1] == pytest.approx(2)
    assert told([0.0], [-3.0], 9.0, positive=True) == (0, 0)  # it may not be used


@pytest.mark.parametrize("positive", [False, True])
def test_no_codes_are_worse_than_their_certificate_says(positive):
    patches, dictionary = problem()
    least = objective(patches, dictionary, best(patches, dictionary, positive))
    for seed in range(20):
        codes = drawn(12, 6, seed=seed) * (drawn(12, 6, seed=100 + seed) > 0.5)
        codes = codes.abs() if positive else codes
        missed = patches - codes @ dictionary
        _, gap = certificate(
            codes, missed @ dictionary.T, missed.square().sum(dim=1), 1.0, positive
        )
        above = objective(patches, dictionary, codes) - least
        assert (gap >= above - 1e-6).all() and (gap <= 1e4 * above).all()


@pytest.mark.parametrize("positive", [False, True])
def test_at_the_minimum_no_step_moves_and_another_rho_changes_no_code(positive):
    patches, dictionary = problem()
    codes = best(patches, dictionary, positive)
    splitting = DouglasRachford(patches, dictionary, codes, positive)
    for rho in (splitting.rho, splitting.rho / 3):
        splitting.set_rho(rho)
        torch.testing.assert_close(splitting.codes(splitting.state), codes, atol=1e-4, rtol=0)
        before = splitting.state.clone()
        splitting.step(splitting.state, splitting.drift)
        torch.testing.assert_close(splitting.state, before, atol=1e-3, rtol=0)


def test_steps_lead_to_the_minimum_from_anywhere():
    patches, dictionary = problem()
    splitting = DouglasRachford(patches, dictionary, drawn(12, 6, seed=9), False)
    for _ in range(400):
        splitting.step(splitting.state, splitting.drift)
    found = splitting.codes(splitting.state)
    torch.testing.assert_close(found, best(patches, dictionary), atol=1e-4, rtol=0)


def weights(patches, dictionary, codes, positive=False):
    """The best weights for the atoms and signs of `codes`."""
    slope = (patches - codes @ dictionary) @ dictionary.T - codes.sign()
    return DouglasRachford(patches, dictionary, codes, positive).best_weights(codes, slope)


def test_the_weights_of_settled_atoms_are_exact():
    patches, dictionary = problem()
    exact = best(patches, dictionary)
    rough = exact.sign() * (0.1 + exact.abs().round())
    found = weights(patches, dictionary, rough)
    torch.testing.assert_close(found, exact, atol=1e-4, rtol=0)
    assert (found == 0).eq(exact == 0).all()


def test_atoms_that_are_there_twice_have_the_weight_of_one_together():
    patches, atoms = drawn(5, 4) * 5, torch.eye(4).double()
    codes = torch.full((5, 8), 0.5).double() * torch.cat([patches, patches], dim=1).sign()
    found = weights(patches, torch.cat([atoms, atoms]), codes)
    expected = patches - codes.sign()[:, :4]
    torch.testing.assert_close(found[:, :4] + found[:, 4:], expected, atol=1e-8, rtol=0)


def test_where_positive_no_weight_is_below_zero():
    patches, dictionary = -problem()[0].abs(), problem()[1].abs()
    found = weights(patches, dictionary, torch.ones(12, 6).double(), positive=True)
    assert (found >= 0).all() and (found == 0).any()


def test_no_atoms_have_no_weights():
    patches, dictionary = problem()
    assert not weights(patches, dictionary, torch.zeros(12, 6).double()).any()


@pytest.mark.parametrize("positive", [False, True])
def test_what_is_solved_is_the_minimum_and_said_to_be(positive):
    patches, dictionary = problem(count=300)
    found, missing = solve(patches, dictionary, torch.zeros(300, 6).double(), 1e-9, positive)
    least = objective(patches, dictionary, best(patches, dictionary, positive))
    assert not missing.any()
    reached = objective(patches, dictionary, found.values)
    torch.testing.assert_close(reached, least, rtol=1e-7, atol=0)
    assert (found.gap <= 1e-9 * reached).all() and found.iterations < 50


def test_a_start_that_is_the_answer_takes_no_turn():
    patches, dictionary = problem()
    codes = solve(patches, dictionary, torch.zeros(12, 6).double(), 1e-9, False)[0].values
    assert solve(patches, dictionary, codes, 1e-9, False)[0].iterations == 0


@pytest.mark.parametrize("dtype, times", [(torch.float64, 1), (torch.float32, 0)])
def test_what_splitting_leaves_goes_to_the_homotopy_in_float64_alone(monkeypatch, dtype, times):
    """float32 cannot prove it: that is done anew in float64."""
    asked = []
    monkeypatch.setattr(douglas_rachford, "MOST_TURNS", 1)
    monkeypatch.setattr(
        douglas_rachford, "homotopy", lambda *args: asked.append(args) or homotopy(*args)
    )
    patches, dictionary = (x.to(dtype) for x in problem(strength=40))
    start = torch.zeros(12, 6, dtype=dtype)
    _, missing = solve(patches, dictionary, start, 1e-9, False)
    assert len(asked) == times and missing.any() == (times == 0)


def test_the_homotopy_is_exact_down_to_small_penalties():
    patches, dictionary = problem(strength=1e4)
    codes = homotopy(patches, dictionary, False)
    missed = patches - codes @ dictionary
    correlation, squared = missed @ dictionary.T, missed.square().sum(dim=1)
    kkt, _ = certificate(codes, correlation, squared, 1.0, False)
    assert (kkt < 1e-8).all()


def test_the_homotopy_keeps_the_dtype():
    patches, dictionary = (x.float() for x in problem())
    assert homotopy(patches, dictionary, False).dtype == torch.float32


def test_lists_of_atoms_end_with_a_number_that_no_atom_has():
    mask = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()
    assert douglas_rachford._lists(mask).tolist() == [[1, 3, 4], [4, 4, 4], [0, 1, 2]]
    assert douglas_rachford._lists(mask[1:2]).tolist() == [[4]]
