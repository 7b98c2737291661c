import math
import warnings

import pytest
import torch
from sklearn.decomposition import sparse_encode

from course.learning.images.whitening import whitened_patches
from course.learning.sparse import douglas_rachford
from course.learning.sparse.sparse_coding import (
    Codes,
    Unsettled,
    certify,
    coordinate_descent,
    curvature,
    encode,
    fista,
    ista,
    objective,
    splitting,
)

GOLDEN = torch.tensor([[1, 0.3], [0.5, 1], [0.2, 0.4]], dtype=torch.float64)
STEPPING = [ista, fista, coordinate_descent, splitting]


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def problem(count=30, atoms=20, pixels=16, seed=0, strength=1.0):
    """Patches of very different strength, and atoms of length 1."""
    dictionary = drawn(atoms, pixels, seed=seed)
    strengths = strength * torch.logspace(-1.5, 0.5, count, dtype=torch.float64)[:, None]
    return (
        strengths * drawn(count, pixels, seed=seed + 1),
        dictionary / dictionary.norm(dim=1, keepdim=True),
    )


def of_scikit_learn(patches, dictionary, penalty, positive=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap of 1e-8 ||x||^2 cannot always be reached
        codes = sparse_encode(
            patches.numpy(), dictionary.numpy(), algorithm="lasso_cd", alpha=penalty,
            positive=positive, max_iter=20_000,
        )  # fmt: skip
    return torch.from_numpy(codes)


def solved(method, *arguments, **options):
    steps = () if method is encode else (400,)
    return method(*arguments, *steps, **options)


def test_the_golden_problem_starts_as_it_should():
    assert math.isclose(curvature(GOLDEN), 2.1502272434, abs_tol=1e-10)
    first = ista(torch.tensor([[1, -0.5]]).double(), GOLDEN, 0.1, 1).values
    expected = torch.tensor([[0.34880034, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(first, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("method", [*STEPPING, encode])
def test_every_method_solves_the_golden_problem(method):
    patches = torch.tensor([[1, -0.5]], dtype=torch.float64)
    found = solved(method, patches, GOLDEN, 0.1)
    expected = torch.tensor([[1.18685121, -0.67958478, 0]], dtype=torch.float64)
    torch.testing.assert_close(found.values, expected, atol=1e-8, rtol=0)
    reached = objective(patches, GOLDEN, found.values, 0.1)
    assert math.isclose(reached, 0.2139100346, abs_tol=1e-10)
    slope = (found.values @ GOLDEN - patches) @ GOLDEN.T
    expected = torch.tensor([[-0.1, 0.1, 0.04]], dtype=torch.float64)
    torch.testing.assert_close(slope, expected, atol=1e-8, rtol=0)
    assert found.kkt < 1e-8 and found.gap < 1e-8


@pytest.mark.parametrize("method", [*STEPPING, encode])
@pytest.mark.parametrize("positive", [False, True])
def test_the_objective_is_that_of_scikit_learn(method, positive):
    patches, dictionary = problem()
    found = solved(method, patches, dictionary, 0.7, positive=positive)
    theirs = of_scikit_learn(patches, dictionary, 0.7, positive)
    reached = objective(patches, dictionary, found.values, 0.7)
    torch.testing.assert_close(
        reached, objective(patches, dictionary, theirs, 0.7), rtol=1e-6, atol=0
    )
    assert (found.values >= 0).all() or not positive
    assert (found.gap <= 1e-6 * reached).all()


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("dtype, rounding", [(torch.float32, 4e-6), (torch.float64, 0)])
def test_encode_keeps_its_promise_for_many_patches(positive, dtype, rounding):
    patches, dictionary = (each.to(dtype).double() for each in problem(700, 90, 49, strength=5))
    found = encode(patches.to(dtype), dictionary.to(dtype), 1.0, positive=positive)
    assert found.values.dtype == found.gap.dtype == dtype
    proven = certify(patches, dictionary, 1.0, found.values.double(), positive)
    reached = objective(patches, dictionary, found.values.double(), 1.0)
    assert (proven.gap <= (1e-6 + rounding) * reached).all()
    best = encode(patches, dictionary, 1.0, positive=positive, tolerance=1e-12)
    least = objective(patches, dictionary, best.values, 1.0)
    assert (reached >= least * (1 - 1e-11)).all() and (reached <= least * (1 + 1e-6)).all()
    assert (found.values != 0).sum(dim=1).max() > 20


def test_encode_returns_the_proofs_of_its_own_codes():
    patches, dictionary = problem()
    penalty = torch.linspace(0.1, 3, 30).double()
    found = encode(patches, dictionary, penalty, tolerance=0.3)
    proven = certify(patches, dictionary, penalty, found.values)
    assert (found.gap > 1e-3).any()
    torch.testing.assert_close(found.gap, proven.gap)
    torch.testing.assert_close(found.kkt, proven.kkt)


@pytest.mark.parametrize("positive", [False, True])
def test_the_certificate_bounds_what_is_missing_at_every_step(positive):
    patches, dictionary = problem()
    best = encode(patches, dictionary, 0.5, positive=positive, tolerance=1e-13).values
    least, seen = objective(patches, dictionary, best, 0.5), []
    fista(patches, dictionary, 0.5, 60, positive=positive, watch=seen.append)
    for codes in seen:
        missing = objective(patches, dictionary, codes, 0.5) - least
        assert (certify(patches, dictionary, 0.5, codes, positive).gap >= missing - 1e-12).all()


def test_the_certificate_is_primal_minus_dual():
    patches, dictionary = problem()
    codes = fista(patches, dictionary, 0.5, 5).values
    missed = patches - codes @ dictionary
    pull = (missed @ dictionary.T).abs().amax(dim=1, keepdim=True)
    dual_point = missed * (0.5 / pull).clamp(max=1)
    dual = (patches * dual_point).sum(dim=1) - dual_point.square().sum(dim=1) / 2
    expected = objective(patches, dictionary, codes, 0.5) - dual
    found = certify(patches, dictionary, 0.5, codes).gap
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_the_violation_of_the_conditions_is_the_slope_that_is_left():
    patches = torch.tensor([[3.0, 0.2]]).double()
    atoms, codes = torch.eye(2).double(), torch.tensor([[1.0, 0]]).double()
    assert certify(patches, atoms, 0.5, codes).kkt == 1.5  # |(3 - 1) - 0.5|
    assert certify(patches, atoms, 0.5, 4 * codes).kkt == 1.5  # |(3 - 4) - 0.5|
    assert certify(-patches, atoms, 0.5, 0 * codes).kkt == 2.5
    assert certify(-patches, atoms, 0.5, 0 * codes, positive=True).kkt == 0


@pytest.mark.parametrize("method", [*STEPPING, encode])
def test_all_zero_is_best_from_the_largest_pull_on_and_not_below(method):
    patches, dictionary = problem(8)
    limit = (patches @ dictionary.T).abs().amax(dim=1)
    above = solved(method, patches, dictionary, limit * (1 + 1e-9))
    below = solved(method, patches, dictionary, limit * 0.9)
    assert not above.values.any() and not above.gap.any()
    assert below.values.any(dim=1).all()


@pytest.mark.parametrize("method", [*STEPPING, encode])
def test_a_penalty_per_patch_is_as_if_each_were_alone(method):
    patches, dictionary = problem(3)
    penalty = torch.tensor([0.1, 0.5, 1.0]).double()
    together = solved(method, patches, dictionary, penalty)
    for row in range(3):
        alone = solved(method, patches[row : row + 1], dictionary, penalty[row].item())
        torch.testing.assert_close(together.values[row], alone.values[0], atol=1e-5, rtol=0)


def distance(patches, dictionary, penalty):
    best = encode(patches, dictionary, penalty, tolerance=1e-13).values
    return best.square().sum(dim=1), objective(patches, dictionary, best, penalty)


def test_ista_and_fista_keep_their_bounds_at_every_step():
    patches, dictionary = problem()
    squared, least = distance(patches, dictionary, 0.3)
    limit = curvature(dictionary) * squared
    for method, bound in [
        (ista, lambda k: limit / (2 * k)),
        (fista, lambda k: 2 * limit / (k + 1) ** 2),
    ]:
        seen = []
        method(patches, dictionary, 0.3, 200, watch=seen.append)
        assert len(seen) == 200
        for k, codes in enumerate(seen, start=1):
            missing = objective(patches, dictionary, codes, 0.3) - least
            assert (missing <= bound(k) * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("method", [ista, coordinate_descent])
def test_ista_and_coordinate_descent_never_go_up(method):
    patches, dictionary = problem()
    seen = []
    method(patches, dictionary, 0.3, 50, watch=seen.append)
    heights = torch.stack([objective(patches, dictionary, codes, 0.3) for codes in seen])
    assert (heights.diff(dim=0) <= 1e-12 * heights[:-1]).all()


def test_restarts_help_where_fista_overshoots():
    patches, dictionary = problem(strength=3)
    plain, restarted = (
        fista(patches, dictionary, 0.1, 300, restart=restart).gap.sum() for restart in (False, True)
    )
    assert restarted < plain / 2


@pytest.mark.parametrize("method", [*STEPPING, encode])
def test_a_start_is_used_and_left_as_it_was(method):
    patches, dictionary = problem()
    best = encode(patches, dictionary, 0.5, tolerance=1e-13).values
    before, steps = best.clone(), () if method is encode else (1,)
    again = method(patches, dictionary, 0.5, *steps, start=best)
    torch.testing.assert_close(again.values, before, atol=1e-6, rtol=0)
    assert torch.equal(best, before) and again.iterations == len(steps)


def test_no_step_gives_the_start_and_its_proof():
    patches, dictionary = problem()
    for method in (ista, fista, coordinate_descent):
        found = method(patches, dictionary, 0.5, 0, start=torch.ones(30, 20).double())
        torch.testing.assert_close(found.values, torch.ones(30, 20).double())
        assert isinstance(found, Codes) and found.kkt.shape == found.gap.shape == (30,)


@pytest.mark.parametrize("method", STEPPING)
def test_what_is_watched_does_not_change_later(method):
    patches, dictionary = problem()
    seen, copies = [], []

    def watch(codes):
        seen.append(codes)
        copies.append(codes.clone())

    method(patches, dictionary, 0.5, 4, watch=watch)
    assert len(seen) == 4 and all(torch.equal(a, b) for a, b in zip(seen, copies))
    assert not torch.equal(seen[0], seen[1])


def test_twins_among_the_atoms_and_rows_with_strides_do_no_harm():
    patches, dictionary = problem(40)
    twins = torch.cat([dictionary, dictionary[:10], -dictionary[:3]])
    one, two = (encode(patches[::2], atoms, 0.3) for atoms in (dictionary, twins))
    torch.testing.assert_close(
        objective(patches[::2], dictionary, one.values, 0.3),
        objective(patches[::2], twins, two.values, 0.3), rtol=1e-6, atol=0,
    )  # fmt: skip
    turned = encode(patches.T.contiguous().T, dictionary, 0.3)
    torch.testing.assert_close(turned.values[::2], one.values)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_atoms_need_not_have_length_one(scale):
    patches, dictionary = problem()
    plain, scaled = (
        encode(patches, atoms, penalty)
        for atoms, penalty in [(dictionary, 0.3), (scale * dictionary, 0.3 * scale)]
    )
    torch.testing.assert_close(plain.values, scale * scaled.values, atol=1e-5, rtol=0)


def test_one_patch_one_pixel_one_atom():
    found = encode(torch.tensor([[3.0]]), torch.tensor([[2.0]]), 1.0)
    assert found.values.tolist() == [[1.25]]


def test_float32_goes_on_in_float64_where_its_digits_end():
    patches, dictionary = problem(20, strength=20)
    found = encode(patches.float(), dictionary.float(), 0.3, tolerance=1e-9)
    best = encode(patches.float().double(), dictionary.float().double(), 0.3, tolerance=1e-9)
    assert (found.gap <= 1e-9 * objective(patches, dictionary, best.values, 0.3)).all()
    torch.testing.assert_close(found.values.double(), best.values, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("strength, penalty", [(3, 0.7), (3, 0.01), (1000, 1)])
def test_patches_that_need_as_many_atoms_as_they_have_pixels_settle(strength, penalty):
    patches, dictionary = problem(pixels=12, strength=strength)
    found = encode(patches, dictionary, penalty)
    assert (found.gap <= 1e-6 * objective(patches, dictionary, found.values, penalty)).all()
    assert (found.values[-1] != 0).sum() >= 11


@pytest.mark.parametrize("length", [1, 14])
def test_penalties_of_a_hundredth_of_the_pull_settle(length):
    """Strides that became ever larger, in steps of 3 up to 729, never arrived at such codes."""
    patches, dictionary = whitened_patches(14, 20, seed=0), drawn(392, 196).float()
    dictionary = length * dictionary / dictionary.norm(dim=1, keepdim=True)
    codes = encode(patches, dictionary, 0.1 * length)
    assert (codes.gap <= 5e-6 * objective(patches, dictionary, codes.values, 0.1 * length)).all()


def test_what_does_not_settle_is_told_together_with_all_codes(monkeypatch):
    patches, dictionary = problem(strength=20)
    monkeypatch.setattr(douglas_rachford, "MOST_TURNS", 1)
    monkeypatch.setattr(
        douglas_rachford, "homotopy", lambda x, d, positive: x.new_zeros(len(x), 20)
    )
    with pytest.raises(
        Unsettled, match=r"^\d+ of 30 patches have gaps of up to .* 1e-06: "
    ) as told:
        encode(patches, dictionary, 1.0)
    codes = told.value.codes
    proven = certify(patches, dictionary, 1.0, codes.values)
    torch.testing.assert_close(codes.gap, proven.gap)
    done = codes.gap <= 1e-6 * objective(patches, dictionary, codes.values, 1.0)
    assert 0 < done.sum() < 30 and str(told.value).startswith(f"{30 - done.sum()} of 30 ")


@pytest.mark.parametrize("tolerance", [1e-14, 1e-30])
def test_a_tolerance_below_rounding_is_said_to_be_missed(tolerance):
    patches, dictionary = problem(strength=100)
    with pytest.raises(Unsettled, match=f"above the tolerance {tolerance:g}"):
        encode(patches, dictionary, 1.0, tolerance=tolerance)


@pytest.mark.parametrize("share", [1e3, 1e4, 1e5])
@pytest.mark.parametrize("positive", [False, True])
def test_small_penalties_settle_where_scikit_learn_has_the_answer_at_once(share, positive):
    """Splitting alone took 2009 turns, and 46 s to say that 4 of 20 patches had not settled."""
    patches, dictionary = problem(4, 60, 32, strength=30)
    patches[1:] /= patches[1:].norm(dim=1, keepdim=True)
    penalty = float((patches @ dictionary.T).abs().max()) / share
    found = encode(patches, dictionary, penalty, positive=positive)
    reached = objective(patches, dictionary, found.values, penalty)
    assert (
        certify(patches, dictionary, penalty, found.values, positive).gap <= 1e-6 * reached
    ).all()


@pytest.mark.parametrize("share, most", [(2, 5), (10, 20), (100, 100)])
def test_atoms_that_are_there_twice_share_their_weight(share, most):
    """Their systems had no answer: 1416 turns, or none at all."""
    patches, atoms = drawn(40, 3), drawn(15, 3, seed=1)
    dictionary = torch.cat([atoms, atoms])
    found = encode(patches, dictionary, float((patches @ dictionary.T).abs().max()) / share)
    assert found.iterations <= most


def test_the_gap_of_float32_codes_is_that_of_the_codes_as_they_are_returned():
    """Rounding moves them after the proof: by up to 7e-12 of the objective, unless it is added."""
    patches, dictionary = (each.float() for each in problem(60, 40, 12, strength=20))
    wide = patches.double(), dictionary.double(), 0.05
    found = encode(patches, dictionary, 0.05, tolerance=3e-12)
    best = encode(*wide, tolerance=1e-11)
    worse = objective(*wide[:2], found.values.double(), 0.05) - objective(
        *wide[:2], best.values, 0.05
    )
    assert (worse > 0).any()
    assert (worse <= found.gap.double() * (1 + 1e-6) + best.gap).all()


PATCHES, ATOMS = drawn(4, 3), drawn(5, 3, seed=1)
NAN = torch.full((4, 3), math.nan).double()


@pytest.mark.parametrize("method", [*STEPPING, encode])
@pytest.mark.parametrize(
    "patches, atoms, penalty, options, message",
    [
        (NAN, ATOMS, 1.0, {}, "patches must be finite numbers, and some are nan"),
        (PATCHES, ATOMS / 0, 1.0, {}, "dictionary must be finite numbers"),
        (PATCHES[:0], ATOMS, 1.0, {}, r"patches must be \[1 or more, 1 or more\], not \[0, 3\]"),
        (PATCHES[0], ATOMS, 1.0, {}, r"patches must be \[1 or more, 1 or more\], not \[3\]"),
        (PATCHES, ATOMS[:0], 1.0, {}, r"dictionary must be .*, not \[0, 3\]"),
        (PATCHES, ATOMS[:, :2], 1.0, {}, "the same number of pixels, not 2 and 3"),
        (PATCHES, ATOMS.float(), 1.0, {}, "not torch.float32 and torch.float64"),
        (PATCHES.long(), ATOMS.long(), 1.0, {}, "patches must be floating point, not torch.int64"),
        (PATCHES, ATOMS * torch.eye(5, 3).double()[:, :1], 1.0, {}, "an atom of zeros"),
        (PATCHES, ATOMS, 0.0, {}, "the penalty must be above 0 and finite, not 0"),
        (PATCHES, ATOMS, -1, {}, "the penalty must be above 0 and finite, not -1"),
        (PATCHES, ATOMS, math.nan, {}, "the penalty must be above 0 and finite, not nan"),
        (PATCHES, ATOMS, torch.ones(3), {}, r"one for each of 4 patches, not \[3\]"),
        (PATCHES, ATOMS, 1.0, {"start": PATCHES}, r"codes must be \[4, 5\], not \[4, 3\]"),
        (
            PATCHES, ATOMS, 1.0, {"start": drawn(4, 5), "positive": True},
            "codes must be 0 or more where positive, not -",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_coded_is_said(method, patches, atoms, penalty, options, message):
    with pytest.raises(ValueError, match=message):
        method(patches, atoms, penalty, *(() if method is encode else (3,)), **options)


@pytest.mark.parametrize("tolerance", [0, -1.0, math.nan])
def test_a_tolerance_is_above_zero(tolerance):
    with pytest.raises(ValueError, match="the tolerance must be above 0, not"):
        encode(PATCHES, ATOMS, 1.0, tolerance=tolerance)
