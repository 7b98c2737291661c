"""Write patches as sums of few atoms: by `ista`, `fista`, `coordinate_descent` and `splitting`,
step by step as in the textbooks, or by `encode`, as fast as it goes, until all are done.

Every answer carries a proof of how good it is; `certify` makes one for any codes.

For each patch x and dictionary D, all minimise 1/2 ||x - z D||^2 + penalty ||z||_1 over codes z.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import pad

BLOCK = 256  # patches at a time: what is done with them stays in the cache
MOST_TURNS = (
    3_000  # about ten suffice; the lower the penalty, the more: hundreds at 1 % of the pull
)
RETUNED = (12, 24, 192, 1_536)  # turns at which what is left is walked in larger strides


class Codes(NamedTuple):
    """Codes `values` [count, atoms] after `iterations`, and two proofs [count] of their quality.

    kkt is the largest violation of the conditions for a minimum; the objective is at most `gap`
    above its minimum, whatever that is.
    """

    values: torch.Tensor
    kkt: torch.Tensor
    gap: torch.Tensor
    iterations: int


def soft_threshold(values, threshold, positive=False):
    """`values` moved towards 0 by `threshold`, and not past it; if `positive`, never below 0."""
    if positive:
        return (values - threshold).clamp(min=0)
    return values - values.clamp(-threshold, threshold)


def objective(patches, dictionary, codes, penalty):
    """1/2 ||x - z D||^2 + penalty ||z||_1 of each patch: [count]."""
    missed = patches - codes @ dictionary
    return missed.square().sum(dim=1) / 2 + penalty * codes.abs().sum(dim=1)


def ista(patches, dictionary, penalty, steps, *, positive=False, start=None, watch=None):
    """Codes after `steps` of: walk down the squared error, then soft-threshold.

    `watch(values)` is called with the codes [count, atoms] after each step. The objective is at
    most L ||start - best||^2 / (2 steps) above its minimum, L = `curvature(dictionary)`.
    Source: Daubechies, Defrise and De Mol 2004, Comm. Pure Appl. Math. 57:1413.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, start, positive)
    rate = 1 / curvature(dictionary)
    for _ in range(steps):
        slope = (codes @ dictionary - patches) @ dictionary.T
        codes = soft_threshold(codes - rate * slope, rate * penalty, positive)
        if watch:
            watch(codes)
    return certify(patches, dictionary, penalty, codes, positive, steps)


def fista(
    patches, dictionary, penalty, steps, *, restart=False, positive=False, start=None, watch=None
):
    """Codes after `steps` of ISTA taken from a point ahead, where the last move pointed.

    The objective is at most 2 L ||start - best||^2 / (steps + 1)^2 above its minimum, and may rise
    on the way. `restart` stops where it is when a step turns back, and begins anew.
    Source: Beck and Teboulle 2009, SIAM J. Imaging Sci. 2:183; restart: O'Donoghue and Candes 2015.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, start, positive)
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


def coordinate_descent(
    patches, dictionary, penalty, sweeps, *, positive=False, start=None, watch=None
):
    """Codes after `sweeps` over all atoms; each atom in turn is given its best weight.

    Source: Friedman, Hastie, Hoefling and Tibshirani 2007, Ann. Appl. Stat. 1:302.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, start, positive)
    codes = codes.clone()
    missed = patches - codes @ dictionary
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


def splitting(patches, dictionary, penalty, steps, *, positive=False, start=None, watch=None):
    """Codes after `steps` of Douglas-Rachford splitting, which needs far fewer of them than FISTA.

    Each step solves the squared error and the soft threshold in turn, reflects, and goes 0.9 of the
    way. Costs one product [count, atoms] x [atoms, atoms] per step.
    Source: Lions and Mercier 1979, SIAM J. Numer. Anal. 16:964; as ADMM: Boyd et al. 2011, 6.4.
    """
    penalty, codes = _prepared(patches, dictionary, penalty, start, positive)
    walk = _Walk(patches / penalty, dictionary, codes / penalty, positive)
    for _ in range(steps):
        walk.step(walk.state, walk.drift)
        if watch:
            watch(penalty * walk.shrunk(walk.state))
    codes = penalty * walk.shrunk(walk.state)
    return certify(patches, dictionary, penalty, codes, positive, steps)


def encode(patches, dictionary, penalty, *, tolerance=1e-6, positive=False, start=None):
    """Codes of every patch, each with a gap of at most `tolerance` times its objective.

    A walk by splitting finds which atoms are used and their signs; then a linear system gives their
    weights, and the certificate tells whether that was right. Costs one product [count, atoms] x
    [atoms, atoms] per iteration; patches that are done leave. What float32 cannot prove is
    finished in float64. Raises ArithmeticError where a patch does not settle.
    Source: Douglas-Rachford splitting, Lions and Mercier 1979; weights as in Lee et al. 2006.
    """
    if not tolerance > 0:
        raise ValueError(f"the tolerance must be above 0, not {tolerance}")
    penalty, codes = _prepared(patches, dictionary, penalty, start, positive)
    scaled = patches / penalty  # a patch divided by its penalty has the penalty 1
    found, missing = _solve(scaled, dictionary, codes / penalty, tolerance, positive)
    if patches.dtype != torch.float64 and missing.any():
        again, _ = _solve(
            scaled[missing].double(), dictionary.double(), found.values[missing].double(),
            tolerance, positive,
        )  # fmt: skip
        for old, new in zip(found[:3], again[:3]):
            old[missing] = new.to(old)
    return Codes(
        found.values * penalty,
        found.kkt * penalty[:, 0],
        found.gap * penalty[:, 0] ** 2,
        found.iterations,
    )


def certify(patches, dictionary, penalty, codes, positive=False, iterations=0):
    """`codes` [count, atoms] together with how far they are from the best ones: a Codes."""
    penalty, codes = _prepared(patches, dictionary, penalty, codes, positive)
    missed = patches - codes @ dictionary
    squared = missed.square().sum(dim=1)
    kkt, gap = _proof(codes, missed @ dictionary.T, squared, penalty, positive)
    return Codes(codes, kkt, gap, iterations)


def curvature(dictionary):
    """L: the largest eigenvalue of D D^T, the sharpest curvature of the squared error."""
    return torch.linalg.matrix_norm(dictionary, 2).square()


def _proof(codes, pull, squared, penalty, positive):
    """kkt and gap [count] of codes, from pull = (x - z D) D^T and squared = ||x - z D||^2."""
    used = (pull - penalty * codes.sign()).abs()
    unused = ((pull if positive else pull.abs()) - penalty).clamp(min=0)
    kkt = torch.where(codes == 0, unused, used).amax(dim=1)
    # Where |D y| <= penalty, x y - 1/2 ||y||^2 is at most the minimum (Fenchel's dual). Take
    # y = scale (x - z D): the objective is above that by a sum of terms, none below 0,
    # 1/2 (1 - scale)^2 ||x - z D||^2 + sum_j (penalty |z_j| - scale pull_j z_j).
    scale = penalty / (penalty + unused.amax(dim=1, keepdim=True))
    rest = (penalty * codes.abs() - scale * pull * codes).sum(dim=1).clamp(min=0)
    return kkt, (1 - scale[:, 0]) ** 2 * squared / 2 + rest


class _Walk:
    """Douglas-Rachford splitting for the penalty 1.

    Codes are the soft-thresholded `state`; at the minimum it stands still at codes + pull / rho.
    """

    def __init__(self, patches, dictionary, start, positive):
        self.patches, self.dictionary, self.positive = patches, dictionary, positive
        self.gram = dictionary @ dictionary.T
        self.factor(0.7 * self.gram.diagonal().mean().item())
        self.first = 2 if start.any() else 10
        self.state = start + (patches - start @ dictionary) @ dictionary.T / self.rho

    def tune(self, rho):
        """Walk on with another `rho`: where codes are large, a small one takes larger strides."""
        codes = self.shrunk(self.state)
        self.state = codes + (self.state - codes) * (self.rho / rho)
        self.factor(rho)

    def factor(self, rho):
        """What a step needs to solve the squared error at once."""
        self.rho, dictionary = rho, self.dictionary
        # (D D^T + rho)^-1 = (1 - D (D^T D + rho)^-1 D^T) / rho, in pixels because they are fewer.
        ridge = rho * torch.eye(dictionary.shape[1]).to(dictionary)
        filters = dictionary @ torch.linalg.inv(dictionary.T @ dictionary + ridge)
        self.reflect = torch.eye(len(dictionary)).to(dictionary) - filters @ dictionary.T
        self.drift = self.patches @ filters.T

    def on(self, rows, turn):
        """Those of `rows` whose signs have settled after some more steps, and codes for them."""
        state, drift = self.state.index_select(0, rows), self.drift.index_select(0, rows)
        for _ in range(2 if turn else self.first):
            codes = self.step(state, drift)
        self.state.index_copy_(0, rows, state)
        signs, codes = codes.sign_(), self.shrunk(state)
        settled = (codes.sign() != signs).sum(dim=1) <= turn
        rows, codes = rows[settled], codes[settled]
        if turn % 8 == 7 or not len(rows):  # should the linear systems be near singular
            return rows, codes
        push = (self.patches[rows] - codes @ self.dictionary) @ self.dictionary.T - codes.sign()
        for some in codes.count_nonzero(dim=1).argsort().split(BLOCK // 4):
            codes[some] = self.solved(codes[some], push[some])
        return rows, codes

    def judged(self, rows, codes):
        """The pull (x - z D) D^T of these codes, their kkt and gap, and their objective."""
        missed = self.patches[rows] - codes @ self.dictionary
        pull, squared = missed @ self.dictionary.T, missed.square().sum(dim=1)
        kkt, gap = _proof(codes, pull, squared, 1, self.positive)
        return pull, kkt, gap, squared / 2 + codes.abs().sum(dim=1)

    def step(self, state, drift):
        """Moves `state`, with the `drift` of the same rows; returns the codes before."""
        codes = self.shrunk(state)
        nearest = torch.addmm(drift, (2 * codes).sub_(state), self.reflect)
        state.add_(nearest.sub_(codes), alpha=1.8)
        return codes

    def shrunk(self, state):
        return soft_threshold(state, 1 / self.rho, self.positive)

    def solved(self, codes, push):
        """The weights that are best for the atoms and signs of `codes`, where there are such."""
        nothing = len(self.gram)  # the number of an atom that is not there: lists end with it
        used = _lists(codes != 0)
        pairs = (used[:, :, None] * (nothing + 1) + used[:, None, :]).flatten()
        system = pad(self.gram, (0, 1, 0, 1)).flatten().index_select(0, pairs)
        system = system.view(*used.shape, -1)
        system.diagonal(dim1=1, dim2=2).add_(used == nothing)
        factor, failed = torch.linalg.cholesky_ex(system)
        goal = pad(push, (0, 1)).gather(1, used).masked_fill(failed[:, None] > 0, 0)
        change = torch.cholesky_solve(goal[:, :, None], factor)[:, :, 0]
        solved = pad(codes, (0, 1)).scatter_add(1, used, change)[:, :-1]
        return solved.clamp(min=0) if self.positive else solved


def _solve(patches, dictionary, start, tolerance, positive):
    """Codes for the penalty 1, and which of them [count] miss `tolerance` by rounding errors."""
    walk = _Walk(patches, dictionary, start, positive)
    values, (kkt, gap, reached) = start.clone(), walk.judged(slice(None), start)[1:]
    longest = dictionary.norm(dim=1).amax()
    noise = 4 * torch.finfo(patches.dtype).eps * longest * patches.norm(dim=1)  # of the pull
    left = noise.argsort()  # strong patches use many atoms: neighbours have equal work
    for turn in range(MOST_TURNS):
        left = left[gap[left] > noise[left].clamp(min=tolerance) * reached[left]]
        if not len(left):
            return Codes(values, kkt, gap, turn), gap > tolerance * reached
        if turn in RETUNED:
            walk.tune(walk.rho / 3)
        for rows in left.split(BLOCK):
            rows, found = walk.on(rows, turn)
            pull, *proof = walk.judged(rows, found)
            better = proof[1] < gap[rows] / 2
            rows, found = rows[better], found[better]
            for old, new in zip((values, kkt, gap, reached), (found, *(p[better] for p in proof))):
                old[rows] = new
            walk.state[rows] = found + pull[better] / walk.rho  # go on from there
    raise ArithmeticError(f"{len(left)} of {len(patches)} patches have not settled")


def _prepared(patches, dictionary, penalty, start, positive):
    """The penalty as a column [count or 1, 1] and codes to start from [count, atoms]."""
    for name, given in {"patches": patches, "dictionary": dictionary, "start": start}.items():
        if given is not None:
            check_rows(name, given)
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
    codes = patches.new_zeros(shape) if start is None else start
    if codes.shape != shape:
        raise ValueError(f"codes must be {list(shape)}, not {list(codes.shape)}")
    if positive and codes.min() < 0:
        raise ValueError(f"codes must be 0 or more where positive, not {codes.min().item()}")
    return penalty.reshape(-1, 1).expand(len(patches), 1), codes


def check_rows(name, rows):
    """Raises ValueError unless `rows` [1 or more, 1 or more] are floating point and finite."""
    if rows.dim() != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must be [1 or more, 1 or more], not {list(rows.shape)}")
    if not rows.is_floating_point():
        raise ValueError(f"{name} must be floating point, not {rows.dtype}")
    if not rows.isfinite().all():
        raise ValueError(f"{name} must be finite numbers, and some are nan or infinite")


def _lists(mask):
    """The numbers of the True columns of each row of `mask`, filled up with its width."""
    counts = mask.sum(dim=1)
    row, column = mask.nonzero(as_tuple=True)
    place = torch.arange(len(row), device=mask.device) - (counts.cumsum(0) - counts)[row]
    lists = torch.full((len(mask), max(int(counts.max()), 1)), mask.shape[1], device=mask.device)
    lists[row, place] = column
    return lists
