"""Settle which atoms sparse codes use and with which signs, then solve for their weights exactly.

`DouglasRachford` takes the steps, `solve` goes on until a `certificate` holds for every patch. All
for the penalty 1: sparse_coding.py, which these serve, divides patches by theirs.
"""

import warnings
from typing import NamedTuple

import torch
from torch.nn.functional import pad

BLOCK = 256  # patches at a time: what is done with them stays in the cache
MOST_TURNS = (
    400  # about ten suffice; hundreds where the penalty is 1 % of the strongest correlation
)
SHRINK_RHO = (12, 24, 192)  # turns from which on larger steps are taken with what is left


class Codes(NamedTuple):
    """Codes `values` [count, atoms] after `iterations`, and two proofs [count] of their quality.

    kkt is the largest violation of the conditions for a minimum; the objective is at most `gap`
    above its minimum, whatever that is; both up to the rounding of their dtype.
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


def certificate(codes, correlation, squared, penalty, positive):
    """kkt and gap [count] of codes; correlation = (x - z D) D^T, squared = ||x - z D||^2."""
    used = (correlation - penalty * codes.sign()).abs()
    unused = ((correlation if positive else correlation.abs()) - penalty).clamp(min=0)
    kkt = torch.where(codes == 0, unused, used).amax(dim=1)
    # Where |D y| <= penalty, x y - 1/2 ||y||^2 is at most the minimum (Fenchel's dual). Take
    # y = scale (x - z D): the objective is above that by a sum of terms, none below 0,
    # 1/2 (1 - scale)^2 ||x - z D||^2 + sum_j (penalty |z_j| - scale c_j z_j).
    scale = penalty / (penalty + unused.amax(dim=1, keepdim=True))
    rest = (penalty * codes.abs() - scale * correlation * codes).sum(dim=1).clamp(min=0)
    return kkt, (1 - scale[:, 0]) ** 2 * squared / 2 + rest


class DouglasRachford:
    """Douglas-Rachford splitting for the penalty 1.

    Codes are the soft-thresholded `state`, which at the minimum is codes + correlation / rho.
    """

    def __init__(self, patches, dictionary, start, positive):
        self.patches, self.dictionary, self.positive = patches, dictionary, positive
        self.gram = dictionary @ dictionary.T
        self.factor(0.7 * self.gram.diagonal().mean().item())
        self.first = 2 if start.any() else 10
        self.state = start + (patches - start @ dictionary) @ dictionary.T / self.rho

    def set_rho(self, rho):
        """Go on with another `rho`: where codes are large, a small one takes larger steps."""
        codes = self.codes(self.state)
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

    def advance(self, rows, turn):
        """Those of `rows` whose signs have settled after some more steps, and codes for them."""
        state, drift = self.state.index_select(0, rows), self.drift.index_select(0, rows)
        for _ in range(2 if turn else self.first):
            codes = self.step(state, drift)
        self.state.index_copy_(0, rows, state)
        signs, codes = codes.sign_(), self.codes(state)
        steady = (codes.sign() != signs).sum(dim=1) <= turn
        rows, codes = rows[steady], codes[steady]
        if turn % 8 == 7 or not len(rows):  # should the linear systems be near singular
            return rows, codes
        return rows, self.refined(rows, codes)

    def evaluate(self, rows, codes):
        """The correlation (x - z D) D^T of these codes, their kkt and gap, and their objective."""
        missed = self.patches[rows] - codes @ self.dictionary
        correlation, squared = missed @ self.dictionary.T, missed.square().sum(dim=1)
        kkt, gap = certificate(codes, correlation, squared, 1, self.positive)
        return correlation, kkt, gap, squared / 2 + codes.abs().sum(dim=1)

    def step(self, state, drift):
        """Moves `state`, with the `drift` of the same rows; returns the codes before."""
        codes = self.codes(state)
        nearest = torch.addmm(drift, (2 * codes).sub_(state), self.reflect)
        state.add_(nearest.sub_(codes), alpha=1.8)
        return codes

    def codes(self, state):
        return soft_threshold(state, 1 / self.rho, self.positive)

    def refined(self, rows, codes):
        """`codes` of these rows with the best weights for their atoms and signs, in place."""
        slope = (self.patches[rows] - codes @ self.dictionary) @ self.dictionary.T - codes.sign()
        for some in codes.count_nonzero(dim=1).argsort().split(BLOCK // 4):
            codes[some] = self.best_weights(codes[some], slope[some])
        return codes

    def best_weights(self, codes, slope):
        """The weights that are best for the atoms and signs of `codes`, where there are such.

        A little of the identity is added to each system: atoms that are there twice share a weight.
        """
        nothing = len(self.gram)  # the number of an atom that is not there: lists end with it
        used = _lists(codes != 0)
        pairs = (used[:, :, None] * (nothing + 1) + used[:, None, :]).flatten()
        system = pad(self.gram, (0, 1, 0, 1)).flatten().index_select(0, pairs)
        system = system.view(*used.shape, -1)
        little = 16 * torch.finfo(system.dtype).eps * self.gram.diagonal().amax()
        system.diagonal(dim1=1, dim2=2).add_(used == nothing).add_(little)
        factor, failed = torch.linalg.cholesky_ex(system)
        goal = pad(slope, (0, 1)).gather(1, used).masked_fill(failed[:, None] > 0, 0)
        change = torch.cholesky_solve(goal[:, :, None], factor)[:, :, 0]
        solved = pad(codes, (0, 1)).scatter_add(1, used, change)[:, :-1]
        return solved.clamp(min=0) if self.positive else solved


def solve(patches, dictionary, start, tolerance, positive):
    """Codes for the penalty 1, and which of them [count] miss `tolerance`.

    What float32 does not settle is left to float64, what that does not settle to `homotopy`.
    """
    splitting = DouglasRachford(patches, dictionary, start, positive)
    values, (kkt, gap, reached) = start.clone(), splitting.evaluate(slice(None), start)[1:]
    longest = dictionary.norm(dim=1).amax()
    noise = 4 * torch.finfo(patches.dtype).eps * longest * patches.norm(dim=1)  # in a correlation

    def keep_better(rows, found, times):
        correlation, *told = splitting.evaluate(rows, found)
        better = told[1] < gap[rows] / times
        rows, found = rows[better], found[better]
        for old, new in zip((values, kkt, gap, reached), (found, *(t[better] for t in told))):
            old[rows] = new
        splitting.state[rows] = found + correlation[better] / splitting.rho  # go on from there

    left = noise.argsort()  # strong patches use many atoms: neighbours have equal work
    for turn in range(MOST_TURNS):
        left = left[gap[left] > noise[left].clamp(min=tolerance) * reached[left]]
        if not len(left):
            break
        if turn in SHRINK_RHO:
            splitting.set_rho(splitting.rho / 3)
        for rows in left.split(BLOCK):
            keep_better(*splitting.advance(rows, turn), times=2)
    if len(left) and patches.dtype == torch.float64:
        codes = homotopy(patches[left], dictionary, positive)
        keep_better(left, codes, times=1)
        keep_better(left, splitting.refined(left, codes), times=1)
    return Codes(values, kkt, gap, turn), gap > tolerance * reached


def homotopy(patches, dictionary, positive):
    """Codes for the penalty 1, a patch after another along the path from the largest penalty down.

    Exact unless atoms depend on one another; but if `positive` the last step of scikit-learn's ends
    too early, on the right atoms.  About as slow for each patch as 1000 steps for all.
    Source: Efron, Hastie, Johnstone and Tibshirani 2004, Ann. Stat. 32:407; by scikit-learn.
    """
    from sklearn.decomposition import sparse_encode

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it could not settle; the certificate tells
        codes = sparse_encode(
            patches.cpu().numpy(), dictionary.cpu().numpy(), algorithm="lasso_lars", alpha=1.0,
            max_iter=10 * sum(dictionary.shape), positive=positive,
        )  # fmt: skip
    return torch.from_numpy(codes).to(patches)


def _lists(mask):
    """The numbers of the True columns of each row of `mask`, filled up with its width."""
    counts = mask.sum(dim=1)
    row, column = mask.nonzero(as_tuple=True)
    place = torch.arange(len(row), device=mask.device) - (counts.cumsum(0) - counts)[row]
    lists = torch.full((len(mask), max(int(counts.max()), 1)), mask.shape[1], device=mask.device)
    lists[row, place] = column
    return lists
