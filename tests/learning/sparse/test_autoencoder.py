import math

import pytest
import torch

from course.learning.images import photographs as images
from course.learning.images import whitening
from course.learning.sparse import autoencoder
from course.learning.sparse.autoencoder import AutoEncoder, Rica, rica_cost, sparse_cost


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def table(rows, columns, entry):
    return torch.tensor(
        [[entry(i, j) for j in range(columns)] for i in range(rows)], dtype=torch.float64
    )


ENCODER = table(2, 3, lambda i, j: 0.1 * math.cos(1 + 3 * i + j))
PATCHES = table(4, 3, lambda k, i: 0.1 + 0.2 * ((i + 2 * k) % 4))
NETWORK = AutoEncoder(
    ENCODER,
    torch.tensor([0.1, -0.1], dtype=torch.float64),
    table(3, 2, lambda i, j: 0.1 * math.sin(2 + 2 * i + j)),
    torch.tensor([0, 0.05, -0.05], dtype=torch.float64),
)


def gradients(cost, network, *patches):
    leaves = [each.clone().requires_grad_() for each in network]
    return torch.autograd.grad(sum(cost(type(network)(*leaves), *patches)), leaves)


@pytest.mark.parametrize(
    "target, activity, value, slope",
    [
        *((0.05, 0.1, 0.0167065, 0.5555556), (0.05, 0.2, 0.09394303, 0.9375)),
        *((0.2, 0.5, 0.19274476, 1.2), (0.01, 0.05, 0.02473615, 0.84210526)),
        (0.3, 0.3, 0.0, 0.0),
    ],
)
def test_divergence(target, activity, value, slope):
    activity = torch.tensor(activity, dtype=torch.float64, requires_grad=True)
    price = autoencoder.divergence(target, activity)
    assert math.isclose(torch.autograd.grad(price, activity)[0], slope, abs_tol=5e-8)
    assert math.isclose(price.detach(), value, abs_tol=5e-8)


def test_the_sparse_cost_of_a_network_known_by_hand():
    parts = sparse_cost(NETWORK, PATCHES, target=0.05)
    assert math.isclose(sum(parts), 3.0580257062, abs_tol=5e-11)
    means = torch.tensor([0.51641755, 0.48085748], dtype=torch.float64)
    torch.testing.assert_close(NETWORK.encode(PATCHES).mean(dim=0), means, atol=5e-9, rtol=0)
    by_hand = autoencoder.backward(NETWORK, PATCHES, target=0.05)
    assert math.isclose(by_hand.encoder[0, 0], 0.4196921018, abs_tol=5e-11)


def test_the_parts_of_the_sparse_cost_answer_to_their_own_constants():
    parts = sparse_cost(NETWORK, PATCHES, decay=0.2, sparsity=2.0)
    other = sparse_cost(NETWORK, PATCHES, decay=0.6, sparsity=1.0)
    assert parts.reconstruction == other.reconstruction
    torch.testing.assert_close(other.decay, 3 * parts.decay)
    torch.testing.assert_close(other.sparsity, parts.sparsity / 2)
    squares = sum((each**2).sum() for each in (NETWORK.encoder, NETWORK.decoder))
    torch.testing.assert_close(parts.decay, 0.1 * squares)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("pixels, hidden, count", [(5, 3, 7), (4, 9, 1), (1, 1, 2)])
def test_the_gradient_by_hand_is_that_of_autograd(linear, pixels, hidden, count):
    network = AutoEncoder(
        *(drawn(hidden, pixels), drawn(hidden, seed=1)),
        *(drawn(pixels, hidden, seed=2), drawn(pixels, seed=3)),
    )
    patches = drawn(count, pixels, seed=4) if linear else torch.sigmoid(drawn(count, pixels))
    how = {"target": 0.2, "decay": 0.3, "sparsity": 0.7, "linear": linear}
    by_hand = autoencoder.backward(network, patches, **how)
    by_autograd = gradients(lambda each: sparse_cost(each, patches, **how), network)
    for mine, its in zip(by_hand, by_autograd, strict=True):
        torch.testing.assert_close(mine, its, atol=1e-12, rtol=0)


def test_a_perfect_linear_network_costs_only_its_weights_and_activity():
    network = AutoEncoder(*(torch.zeros(2, 3), torch.zeros(2), torch.zeros(3, 2), torch.ones(3)))
    parts = sparse_cost(network, torch.ones(5, 3), target=0.5, linear=True)
    assert parts == (0, 0, 0)


def test_the_first_weights_are_small_and_decided_by_the_seed():
    first, again, other = (autoencoder.initial(64, 25, seed) for seed in (0, 0, 1))
    for weights in (first.encoder, first.decoder.T):
        assert weights.shape == (25, 64) and 0.258 < weights.abs().max() <= 0.2581989
        assert abs(weights.mean()) < 0.02
    assert not first.encoder_bias.any() and not first.decoder_bias.any()
    assert torch.equal(first.encoder, again.encoder) and torch.equal(first.decoder, again.decoder)
    assert not torch.equal(first.encoder, other.encoder)
    assert autoencoder.initial(4, 2, 0, torch.float64).decoder_bias.dtype == torch.float64


def test_scaled_patches_lose_their_mean_and_outliers():
    patches = drawn(500, 16) + drawn(500, 1, seed=1)
    patches[0, :2] += torch.tensor([50.0, -50.0])
    inputs = autoencoder.scaled(patches)
    assert math.isclose(inputs.min(), 0.1) and math.isclose(inputs.max(), 0.9)
    centred = patches - patches.mean(dim=1, keepdim=True)
    limit = 3 * centred.std(correction=0)
    inside = centred.abs() < limit
    torch.testing.assert_close(inputs[inside], (0.5 + 0.4 * centred / limit)[inside])


def test_the_rica_cost_of_filters_known_by_hand():
    how = {"sparsity": 0.5, "smoothing": 0.01}
    assert math.isclose(sum(rica_cost(Rica(ENCODER), PATCHES, **how)), 0.3789796772, abs_tol=5e-11)
    (slope,) = gradients(lambda each: rica_cost(each, PATCHES, **how), Rica(ENCODER))
    assert math.isclose(slope[0, 0], -0.0154839914, abs_tol=5e-11)


def test_the_error_of_rica_has_the_gradient_of_the_tutorial():
    filters, patches = drawn(5, 3), drawn(7, 3, seed=1)
    (slope,) = gradients(lambda each: rica_cost(each, patches, sparsity=0), Rica(filters))
    missed = patches @ filters.T @ filters - patches
    twice = 2 * filters @ missed.T @ patches + 2 * filters @ patches.T @ missed
    torch.testing.assert_close(slope, twice / 2 / len(patches), atol=1e-12, rtol=0)


def test_orthogonal_filters_reconstruct_everything():
    filters, _ = torch.linalg.qr(drawn(6, 6))
    assert rica_cost(Rica(filters), drawn(9, 6, seed=1)).reconstruction < 1e-28


def test_unit_filters_do_not_depend_on_length_and_are_differentiated():
    network, patches = Rica(drawn(4, 3)), drawn(7, 3, seed=1)
    longer = Rica(network.filters * torch.tensor([[2.0], [3.0], [0.1], [1.0]]))
    torch.testing.assert_close(longer.unit().filters, network.unit().filters)
    torch.testing.assert_close(network.unit().filters.norm(dim=1), torch.ones(4).double())
    (slope,) = gradients(lambda each: rica_cost(each.unit(), patches), network)
    # A cost that is the same along a ray has no slope along it.
    torch.testing.assert_close(
        (slope * network.filters).sum(dim=1), torch.zeros(4).double(), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        autoencoder.initial_rica(9, 20, 0).filters.norm(dim=1), torch.ones(20)
    )


def waves(filters):
    """Of square filters: how much one direction rules (0 to 1), and the share of fine waves."""
    size = math.isqrt(filters.shape[1])
    power = torch.fft.fft2(filters.unflatten(1, (size, size)).double(), (32, 32)).abs().square()
    down = torch.fft.fftfreq(32, dtype=torch.float64)[:, None]
    frequency, angle = torch.hypot(down, down.T), torch.atan2(down, down.T)
    turned = (power * torch.polar(torch.ones_like(angle), 2 * angle)).sum(dim=(1, 2)).abs()
    total = power.sum(dim=(1, 2))
    return turned / total, power[:, frequency > 0.35].sum(dim=1) / total


@pytest.fixture(scope="module")
def natural_patches():
    pictures = [images.photograph(name) for name in ("camera", "chelsea", "coffee", "rocket")]
    return whitening.whitened_patches(8, 3000, 0, pictures)


def test_a_sparse_autoencoder_learns_edges(natural_patches):
    # With the divergence in float32 the walk ended early: no trial was seen to be lower.
    inputs, start = autoencoder.scaled(natural_patches), autoencoder.initial(64, 25, 0)
    training = autoencoder.by_lbfgs(lambda network: sparse_cost(network, inputs), start, 200)
    directed, fine = waves(training.network.encoder)
    directed_before, fine_before = waves(start.encoder)
    assert directed.median() > 0.3 > 0.2 > directed_before.median()
    assert fine.median() < 0.2 < 0.5 < fine_before.median()
    assert training.costs.reconstruction[-1] < 0.9 * (inputs - 0.5).square().sum(1).mean() / 2
    assert abs(training.network.encode(inputs).mean() - 0.01) < 0.005


def test_rica_learns_edges_from_batches(natural_patches):
    whitened = whitening.zca(natural_patches, 0.1).apply(natural_patches)
    inputs = whitened / whitened.norm(dim=1, keepdim=True)
    training = autoencoder.by_adam(
        lambda network, patches: rica_cost(network.unit(), patches), inputs,
        autoencoder.initial_rica(64, 25, 0), rate=0.02, steps=800, batch=300, seed=0,
    )  # fmt: skip
    directed, _ = waves(training.network.filters)
    assert directed.median() > 0.4
    assert training.costs.reconstruction.shape == training.costs.sparsity.shape == (800,)


def test_lbfgs_finds_the_principal_components():
    patches = drawn(200, 6) * torch.tensor([3.0, 2.0, 1.0, 0.5, 0.4, 0.3])
    training = autoencoder.by_lbfgs(
        lambda network: rica_cost(network, patches, sparsity=0),
        autoencoder.initial_rica(6, 2, 0, torch.float64),
        100,
    )
    left_out = torch.linalg.svdvals(patches)[2:].square().sum() / 200 / 2
    torch.testing.assert_close(training.costs.reconstruction[-1], left_out)
    assert len(training.costs.reconstruction) <= 126  # one line search more than 100 at most


def test_the_costs_of_batches_are_those_of_the_walk():
    start, seen = autoencoder.initial_rica(6, 4, 0, torch.float64), []

    def cost(network, patches):
        seen.append((network.filters.detach().clone(), patches))
        return rica_cost(network, patches)

    training = autoencoder.by_adam(cost, drawn(20, 6), start, rate=0.1, steps=5, batch=8, seed=3)
    assert [len(patches) for _, patches in seen] == [8, 8, 4, 8, 8]
    assert torch.equal(seen[0][0], start.filters)
    for step, (filters, patches) in enumerate(seen):
        now = rica_cost(Rica(filters), patches)
        assert all(run[step] == part for run, part in zip(training.costs, now, strict=True))
    theirs = start.filters.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.1)
    for _, patches in seen:
        optimizer.zero_grad()
        sum(rica_cost(Rica(theirs), patches)).backward()
        optimizer.step()
    torch.testing.assert_close(training.network.filters, theirs.detach())
    assert not training.network.filters.requires_grad


def test_a_cost_that_is_no_number_ends_the_training():
    with pytest.raises(ArithmeticError, match="the cost is inf at evaluation 0"):
        autoencoder.by_lbfgs(
            lambda network: sparse_cost(network, torch.full((3, 3), 0.5).double()),
            NETWORK._replace(encoder_bias=torch.full((2,), 50.0).double()),
            5,
        )


HALF = torch.full((3, 3), 0.5, dtype=torch.float64)


@pytest.mark.parametrize("function", [sparse_cost, autoencoder.backward])
@pytest.mark.parametrize(
    "patches, how, message",
    [
        (HALF, {"target": 0}, "between 0 and 1, not 0"),
        (HALF, {"target": 1.0}, "between 0 and 1, not 1.0"),
        (HALF, {"target": math.nan}, "between 0 and 1, not nan"),
        (HALF, {"decay": -1}, "decay must be 0 or more, not -1"),
        (HALF, {"sparsity": -0.1}, "sparsity must be 0 or more, not -0.1"),
        (HALF - 1, {}, "patches reach from -0.5 to -0.5"),
        (HALF * 3, {}, "patches reach from 1.5 to 1.5: use scaled"),
        (HALF * math.nan, {}, "some are nan or infinite"),
        (HALF[:0], {}, r"1 or more, 1 or more\], not \[0, 3\]"),
        (HALF[0], {}, r"1 or more\], not \[3\]"),
        (HALF.long(), {}, "not torch.int64"),
        (HALF[:, :2], {}, r"2 pixels \(torch.float64\) do not fit a network for 3"),
        (HALF.float(), {}, r"\(torch.float32\) do not fit a network for 3 \(torch.float64\)"),
    ],
)
def test_a_sparse_cost_that_makes_no_sense_is_refused(function, patches, how, message):
    with pytest.raises(ValueError, match=message):
        function(NETWORK, patches, **how)


def training(**how):
    known = {"rate": 0.1, "steps": 1, "batch": 2, "seed": 0}
    return autoencoder.by_adam(rica_cost, HALF, Rica(ENCODER), **known | how)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: rica_cost(Rica(ENCODER), HALF[:, :2]), "2 pixels .* do not fit a network for 3"),
        (lambda: rica_cost(Rica(ENCODER), HALF, sparsity=-1), "sparsity must be 0 or more, not -1"),
        (lambda: rica_cost(Rica(ENCODER), HALF, smoothing=0), "smoothing must be above 0, not 0"),
        (lambda: Rica(ENCODER * 0).unit(), "a filter of zeros has no direction"),
        (lambda: autoencoder.scaled(HALF), "patches must vary to be scaled"),
        (lambda: autoencoder.scaled(HALF[0]), r"1 or more\], not \[3\]"),
        (lambda: autoencoder.by_lbfgs(None, NETWORK, 0), "evaluations must be above 0, not 0"),
        (lambda: training(steps=0), "steps must be above 0, not 0"),
        (lambda: training(rate=0), "rate must be above 0, not 0"),
        (lambda: training(batch=4), "a batch of 4 cannot be drawn from 3 samples"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
