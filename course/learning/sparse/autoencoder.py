"""Learn to code patches in one pass: a sparse auto-encoder, and RICA, its linear cousin.

`sparse_cost` and `rica_cost` say how good a network is, in parts that add up; `by_lbfgs` and
`by_adam` train it; `backward` is the gradient by hand; `scaled` prepares patches for a sigmoid.
"""

import itertools
from typing import NamedTuple

import torch

from course.learning.samples import check_above_zero, check_not_negative, check_samples
from course.learning.training.descent import batches


class AutoEncoder(NamedTuple):
    """Weights of a network pixels -> hidden -> pixels, or the gradients of a cost in them."""

    encoder: torch.Tensor  # [hidden, pixels], W1 in the source
    encoder_bias: torch.Tensor  # [hidden]
    decoder: torch.Tensor  # [pixels, hidden], W2
    decoder_bias: torch.Tensor  # [pixels]

    def encode(self, patches):
        """Codes [count, hidden] in (0, 1) of patches [count, pixels]: one matrix product."""
        return torch.sigmoid(patches @ self.encoder.T + self.encoder_bias)

    def decode(self, codes, linear=False):
        """Patches [count, pixels] from codes; in (0, 1) unless the decoder is linear."""
        outputs = codes @ self.decoder.T + self.decoder_bias
        return outputs if linear else torch.sigmoid(outputs)


class Rica(NamedTuple):
    """Filters [features, pixels], features > pixels allowed, that both encode and decode."""

    filters: torch.Tensor

    def encode(self, patches):
        """Codes [count, features] of patches [count, pixels]: W x for each."""
        return patches @ self.filters.T

    def decode(self, codes):
        """Patches [count, pixels] from codes: W^T z for each."""
        return codes @ self.filters

    def unit(self):
        """The same directions with length 1; to be differentiated through while training."""
        lengths = self.filters.norm(dim=1, keepdim=True)
        if not lengths.min() > 0:
            raise ValueError("a filter of zeros has no direction, and at least one is all zeros")
        return Rica(self.filters / lengths)


class SparseCost(NamedTuple):
    """Numbers whose sum is to be small."""

    reconstruction: torch.Tensor
    decay: torch.Tensor
    sparsity: torch.Tensor


class RicaCost(NamedTuple):
    """Numbers whose sum is to be small."""

    reconstruction: torch.Tensor
    sparsity: torch.Tensor


class Training(NamedTuple):
    """A trained network, and the parts of its cost at each evaluation, [evaluations] each."""

    network: NamedTuple
    costs: NamedTuple


def initial(pixels, hidden, seed, dtype=torch.float32):
    """An AutoEncoder with weights uniform in +-sqrt(6 / (pixels + hidden + 1)) and biases 0."""
    generator = torch.Generator().manual_seed(seed)
    reach = (6 / (pixels + hidden + 1)) ** 0.5

    def uniform(*shape):
        return reach * (2 * torch.rand(shape, generator=generator, dtype=dtype) - 1)

    encoder, decoder = uniform(hidden, pixels), uniform(pixels, hidden)
    return AutoEncoder(encoder, encoder.new_zeros(hidden), decoder, encoder.new_zeros(pixels))


def initial_rica(pixels, features, seed, dtype=torch.float32):
    """A Rica with filters of length 1 in random directions."""
    generator = torch.Generator().manual_seed(seed)
    filters = torch.randn(features, pixels, generator=generator, dtype=dtype)
    return Rica(filters).unit()


def scaled(patches):
    """Patches [count, pixels] as inputs in [0.1, 0.9], which a sigmoid can reach.

    Each loses its mean; 3 standard deviations of all pixels, either way, become 0.1 and 0.9.
    Source: the exercise «Sparse Autoencoder» of Stanford's CS294A, 2011.
    """
    check_samples("patches", patches)
    patches = patches - patches.mean(dim=1, keepdim=True)
    limit = 3 * patches.square().mean().sqrt()
    if not limit > 0:
        raise ValueError("patches must vary to be scaled, and each is constant")
    return 0.5 + 0.4 * (patches / limit).clamp(-1, 1)


def divergence(target, activity):
    """KL(target || activity): the price of a unit that is on `activity`, not `target`, of the time.

    0 where both agree, infinite where the activity is 0 or 1.
    """
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return target * torch.log(target / activity) + off


def sparse_cost(network, patches, *, target=0.01, decay=1e-4, sparsity=3.0, linear=False):
    """SparseCost of an AutoEncoder on patches [count, pixels]: squared error, weights, activity.

    Mean over patches of half the squared error; decay / 2 times the squared weights; sparsity times
    the sum over hidden units of `divergence` of the unit's mean code from `target`.
    Raises ValueError for patches or constants that make no sense. Source: Ng, CS294A notes, 2011.
    """
    _check_sparse(network, patches, target, decay, sparsity, linear)
    codes = network.encode(patches)
    missed = network.decode(codes, linear) - patches
    squares = network.encoder.square().sum() + network.decoder.square().sum()
    # Near its minimum the divergence is a small difference of large terms. In float32 its noise
    # hides from a line search that the other parts go down.
    mean = codes.mean(dim=0, dtype=torch.float64)
    return SparseCost(
        missed.square().sum(dim=1).mean() / 2,
        decay / 2 * squares,
        sparsity * divergence(target, mean).sum(),
    )


def backward(network, patches, *, target=0.01, decay=1e-4, sparsity=3.0, linear=False):
    """Gradients of the sum of `sparse_cost`, an AutoEncoder, by the chain rule, without autograd.

    The mean codes need all patches before the first error goes back: two passes over the data.
    Source: Ng, CS294A notes, 2011, section 3.
    """
    _check_sparse(network, patches, target, decay, sparsity, linear)
    codes = network.encode(patches)
    outputs = network.decode(codes, linear)
    at_outputs = (outputs - patches) / len(patches)  # delta3 / m, before the sigmoid
    if not linear:
        at_outputs = at_outputs * outputs * (1 - outputs)
    mean = codes.mean(dim=0)
    push = sparsity / len(patches) * ((1 - target) / (1 - mean) - target / mean)
    at_codes = (at_outputs @ network.decoder + push) * codes * (1 - codes)  # delta2 / m
    return AutoEncoder(
        at_codes.T @ patches + decay * network.encoder,
        at_codes.sum(dim=0),
        at_outputs.T @ codes + decay * network.decoder,
        at_outputs.sum(dim=0),
    )


def rica_cost(network, patches, *, sparsity=0.05, smoothing=1e-2):
    """RicaCost of a Rica on whitened patches [count, pixels]: squared error and activity, means.

    Half the squared error of W^T W x, and sparsity times the sum of |W x|, whose corner is smoothed
    to sqrt(z^2 + smoothing). Train `network.unit()`, as Stanford's tutorial UFLDL does; its
    sparsity of 5e-4 finds the same edges, slowly. The paper weighs the error instead, takes log
    cosh, and leaves the lengths free.
    Source: Le, Karpenko, Ngiam and Ng 2011, «ICA with reconstruction cost».
    """
    _check_patches(patches, network.filters)
    check_not_negative("sparsity", sparsity)
    check_above_zero("smoothing", smoothing)  # |z| has no slope at 0
    codes = network.encode(patches)
    missed = network.decode(codes) - patches
    return RicaCost(
        missed.square().sum(dim=1).mean() / 2,
        sparsity * (codes.square() + smoothing).sqrt().sum(dim=1).mean(),
    )


def by_lbfgs(cost, start, evaluations):
    """Train with all patches in every step: `cost(network) -> parts`, from the network `start`.

    L-BFGS models the curvature by the last 20 gradients. About `evaluations` of cost and gradient;
    a trial of the line search may cost more than the point before. Ends early where none is lower.
    Source: Liu and Nocedal 1989; Nocedal and Wright, «Numerical optimization», algorithm 3.5.
    """
    check_above_zero("the number of evaluations", evaluations)
    weights, run = _leaves(start), []
    optimizer = torch.optim.LBFGS(
        weights, max_iter=evaluations, max_eval=evaluations, history_size=20,
        tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe",
    )  # fmt: skip
    optimizer.step(lambda: _take(cost(type(start)(*weights)), weights, run))
    return _training(type(start), weights, run)


def by_adam(cost, patches, start, *, rate, steps, batch, seed):
    """Train with the next `batch` patches in each step: `cost(network, patches) -> parts`.

    What a cost says of all patches (the mean codes of `sparse_cost`) it says of the batch alone.
    Source: Kingma and Ba 2015, arXiv 1412.6980.
    """
    check_above_zero("the number of steps", steps)
    check_above_zero("the learning rate", rate)
    weights, run, rows = _leaves(start), [], batches(len(patches), batch, seed)
    optimizer = torch.optim.Adam(weights, lr=rate)
    for chosen in itertools.islice(rows, steps):
        _take(cost(type(start)(*weights), patches[chosen]), weights, run)
        optimizer.step()
    return _training(type(start), weights, run)


def _leaves(network):
    return [each.detach().clone().requires_grad_() for each in network]


def _take(parts, weights, run):
    """Set the gradients of the sum of `parts`, note them in `run`, and give the sum."""
    total = sum(parts)
    if not total.isfinite():
        raise ArithmeticError(f"the cost is {total.item()} at evaluation {len(run)}: {parts}")
    for weight, gradient in zip(weights, torch.autograd.grad(total, weights), strict=True):
        weight.grad = gradient
    run.append(type(parts)(*(part.detach() for part in parts)))
    return total.detach()


def _training(kind, weights, run):
    costs = type(run[0])(*(torch.stack(part) for part in zip(*run, strict=True)))
    return Training(kind(*(weight.detach() for weight in weights)), costs)


def _check_sparse(network, patches, target, decay, sparsity, linear):
    _check_patches(patches, network.encoder)
    if not 0 < target < 1:
        raise ValueError(f"the target activity must be between 0 and 1, not {target}")
    check_not_negative("decay", decay)
    check_not_negative("sparsity", sparsity)
    least, most = patches.min().item(), patches.max().item()
    if not linear and not 0 <= least <= most <= 1:
        raise ValueError(
            f"a sigmoid decodes to values in (0, 1), and the patches reach from {least:.3g} to "
            f"{most:.3g}: use scaled(patches) or linear=True"
        )


def _check_patches(patches, filters):
    check_samples("patches", patches)
    if patches.shape[1] != filters.shape[1] or patches.dtype != filters.dtype:
        raise ValueError(
            f"patches of {patches.shape[1]} pixels ({patches.dtype}) do not fit a network for "
            f"{filters.shape[1]} ({filters.dtype})"
        )
