"""Write patches as sums of few atoms: by `ista`, `fista`, `coordinate_descent` and `splitting`,
step by step as in the textbooks, or by `encode`, as fast as it goes, until all are done.

Every answer carries a proof of how good it is; `certify` makes one for any codes.

For each patch x and dictionary D, all minimise 1/2 ||x - z D||^2 + penalty ||z||_1 over codes z.
"""

import torch

from course.learning.samples import check_above_zero, check_samples
from course.learning.sparse.douglas_rachford import (
    Codes,
    DouglasRachford,
    certificate,
    soft_threshold,
    solve,
)


def objective(patches, dictionary, codes, penalty):
    """1/2 ||x - z D||^2 + penalty ||z||_1 of each patch: [count]."""
    missed = patches - codes @ dictionary
    return missed.square().sum(dim=1) / 2 + penalty * codes.abs().sum(dim=1)


def ista(patches, dictionary, penalty, steps, *, positive=False, watch=None):
    """Codes after `steps` of: walk down the squared error, then soft-threshold.

    They begin at 0; `watch(values)` is called with the codes [count, atoms] after each step. The
    objective is at most L ||best||^2 / (2 steps) above its minimum, L = `curvature(dictionary)`.
    Source: Daubechies, Defrise and De Mol 2004, Comm. Pure Appl. Math. 57:1413.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, positive)
    rate = 1 / curvature(dictionary)
    for _ in range(steps):
        slope = (codes @ dictionary - patches) @ dictionary.T
        codes = soft_threshold(codes - rate * slope, rate * penalty, positive)
        if watch:
            watch(codes)
    return certify(patches, dictionary, penalty, codes, positive, steps)


def fista(patches, dictionary, penalty, steps, *, restart=False, positive=False, watch=None):
    """Codes after `steps` of ISTA taken from a point ahead, where the last move pointed.

    The objective is at most 2 L ||best||^2 / (steps + 1)^2 above its minimum, and may rise on the
    way. `restart` stops where it is when a step turns back, and begins anew.
    Source: Beck and Teboulle 2009, SIAM J. Imaging Sci. 2:183; restart: O'Donoghue and Candes 2015.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, positive)
    rate = 1 / curvature(dictionary)
    ahead, t = codes, codes.new_ones(len(codes), 1)
    for _ in range(steps):
        slope = (ahead @ dictionary - patches) @ dictionary.T
        before, codes = codes, soft_threshold(ahead - rate * slope, rate * penalty, positive)
        if restart:
            turned = ((ahead - codes) * (codes - before)).sum(dim=1, keepdim=True) > 0
            t = torch.where(turned, 1, t)
        t_next = (1 + (1 + 4 * t**2).sqrt()) / 2
        ahead = codes + (t - 1) / t_next * (codes - before)
        t = t_next
        if watch:
            watch(codes)
    return certify(patches, dictionary, penalty, codes, positive, steps)


def coordinate_descent(patches, dictionary, penalty, sweeps, *, positive=False, watch=None):
    """Codes after `sweeps` over all atoms; each atom in turn is given its best weight.

    Source: Friedman, Hastie, Hoefling and Tibshirani 2007, Ann. Appl. Stat. 1:302.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, positive)
    missed = patches.clone()
    for _ in range(sweeps):
        for j, atom in enumerate(dictionary):
            power = atom @ atom
            best = soft_threshold(
                codes[:, j] + missed @ atom / power, penalty[:, 0] / power, positive
            )
            missed -= torch.outer(best - codes[:, j], atom)
            codes[:, j] = best
        if watch:
            watch(codes.clone())
    return certify(patches, dictionary, penalty, codes, positive, sweeps)


def splitting(patches, dictionary, penalty, steps, *, positive=False, watch=None):
    """Codes after `steps` of Douglas-Rachford splitting, which needs far fewer of them than FISTA.

    Each step solves the squared error and the soft threshold in turn, reflects, and goes 0.9 of the
    way. Costs one product [count, atoms] x [atoms, atoms] per step.
    Source: Lions and Mercier 1979, SIAM J. Numer. Anal. 16:964; as ADMM: Boyd et al. 2011, 6.4.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, positive)
    method = DouglasRachford(patches / penalty, dictionary, codes, positive)
    for _ in range(steps):
        method.step(method.state, method.drift)
        if watch:
            watch(penalty * method.codes(method.state))
    codes = penalty * method.codes(method.state)
    return certify(patches, dictionary, penalty, codes, positive, steps)


class Unsettled(ArithmeticError):
    """Some patches miss the tolerance; `codes` are the Codes of all, each with its own gap."""

    def __init__(self, sentence, codes):
        super().__init__(sentence)
        self.codes = codes


def encode(patches, dictionary, penalty, *, tolerance=1e-6, positive=False):
    """Codes of every patch, each with a gap of at most `tolerance` times its objective.

    Splitting finds which atoms are used and their signs; then a linear system gives their weights,
    and the certificate tells whether that was right. Costs one product [count, atoms] x [atoms,
    atoms] per iteration; patches that are done leave. What float32 cannot prove is finished in
    float64, what splitting does not settle (penalties far below 1 % of the strongest correlation)
    by `homotopy`. Raises Unsettled, with all codes, where some gaps stay larger: a tolerance below
    rounding (some 1e-13 in float64) cannot be met.
    Source: Douglas-Rachford splitting, Lions and Mercier 1979; weights as in Lee et al. 2006.
    """
    check_above_zero("the tolerance", tolerance)
    penalty, start = _prepared(patches, dictionary, penalty, positive)
    scaled = patches / penalty  # a patch divided by its penalty has the penalty 1
    found, missing = solve(scaled, dictionary, start, tolerance, positive)
    codes = Codes(found.values * penalty, found.kkt * penalty[:, 0],
                  found.gap * penalty[:, 0] ** 2, found.iterations)  # fmt: skip
    if patches.dtype != torch.float64 and missing.any():
        rows = patches[missing], dictionary, penalty[missing], codes.values[missing]
        again, still = _in_float64(*rows, tolerance, positive)
        for old, new in zip(codes[:3], again[:3]):
            old[missing] = new.to(old)
        missing[missing.clone()] = still
    if missing.any():
        reached = objective(patches, dictionary, codes.values, penalty[:, 0])
        share = (codes.gap / reached)[missing]
        raise Unsettled(
            f"{len(share)} of {len(patches)} patches have gaps of up to {share.max().item():.2g} "
            f"of their objective, above the tolerance {tolerance:g}: the error's `codes` has all",
            codes,
        )
    return codes


def _in_float64(patches, dictionary, penalty, start, tolerance, positive):
    """Codes that are found in float64 and rounded, with the gap of what is returned; and which
    miss `tolerance`."""
    dtype = patches.dtype
    patches, dictionary, penalty, start = (
        x.double() for x in (patches, dictionary, penalty, start)
    )
    found, _ = solve(patches / penalty, dictionary, start / penalty, tolerance, positive)
    exact = found.values * penalty
    rounded = exact.to(dtype).double()
    before, after = (objective(patches, dictionary, z, penalty[:, 0]) for z in (exact, rounded))
    # What proves the exact codes is a lower bound for the rounded ones, too.
    gap = found.gap * penalty[:, 0] ** 2 + (after - before).clamp(min=0)
    kkt = certify(patches, dictionary, penalty, rounded, positive).kkt
    return Codes(rounded, kkt, gap, found.iterations), gap > tolerance * after


def certify(patches, dictionary, penalty, codes, positive=False, iterations=0):
    """`codes` [count, atoms] together with how far they are from the best ones: a Codes."""
    penalty, codes = _prepared(patches, dictionary, penalty, positive, codes)
    missed = patches - codes @ dictionary
    squared = missed.square().sum(dim=1)
    kkt, gap = certificate(codes, missed @ dictionary.T, squared, penalty, positive)
    return Codes(codes, kkt, gap, iterations)


def curvature(dictionary):
    """L: the largest eigenvalue of D D^T, the sharpest curvature of the squared error."""
    return torch.linalg.matrix_norm(dictionary, 2).square()


def _prepared(patches, dictionary, penalty, positive, codes=None):
    """The penalty as a column [count or 1, 1], and codes [count, atoms]: 0 if none are given."""
    for name, given in {"patches": patches, "dictionary": dictionary, "codes": codes}.items():
        if given is not None:
            check_samples(name, given)
            if given.dtype != patches.dtype:
                raise ValueError(
                    f"{name} must be of the same dtype as patches, not {given.dtype} and "
                    f"{patches.dtype}"
                )
    if patches.shape[1] != dictionary.shape[1]:
        raise ValueError(
            f"atoms and patches have the same number of pixels, not {dictionary.shape[1]} and "
            f"{patches.shape[1]}"
        )
    if not dictionary.square().sum(dim=1).min() > 0:
        raise ValueError("an atom of zeros stands for nothing, and at least one is all zeros")
    penalty = torch.as_tensor(penalty, dtype=patches.dtype, device=patches.device)
    if penalty.numel() not in (1, len(patches)):
        raise ValueError(
            f"the penalty is one number or one for each of {len(patches)} patches, "
            f"not {list(penalty.shape)}"
        )
    if not (penalty > 0).all() or not penalty.isfinite().all():
        raise ValueError(f"the penalty must be above 0 and finite, not {penalty.min().item()}")
    shape = len(patches), len(dictionary)
    codes = patches.new_zeros(shape) if codes is None else codes
    if codes.shape != shape:
        raise ValueError(f"codes must be {list(shape)}, not {list(codes.shape)}")
    if positive and codes.min() < 0:
        raise ValueError(f"codes must be 0 or more where positive, not {codes.min().item()}")
    return penalty.reshape(-1, 1).expand(len(patches), 1), codes
