import math

import pytest
import torch
from sklearn.decomposition import PCA

from course.learning.images.whitening import whitened_patches
from course.learning.sparse import dictionary as module
from course.learning.sparse.dictionary import olshausen_field, online
from course.learning.sparse.sparse_coding import encode, objective, splitting


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def mixtures(count=2_000, atoms=24, pixels=16, seed=0):
    """Sums of three of the hidden atoms each, and these atoms."""
    hidden = unit(drawn(atoms, pixels, seed=seed))
    chosen = drawn(count, atoms, seed=seed + 1).argsort(dim=1)[:, :3]
    weights = torch.zeros(count, atoms).double().scatter(1, chosen, 3 * drawn(count, 3, seed=5))
    return weights @ hidden, hidden


LEARN = {
    "online": lambda patches, atoms, **more: online(
        patches, atoms, 0.3, **{"batch": 100, "epochs": 10, "seed": 1} | more
    ),
    "olshausen_field": lambda patches, atoms, **more: olshausen_field(
        patches, atoms, 0.3, **{"rate": 0.5, "steps": 400, "batch": 100, "seed": 1} | more
    ),
}
every = pytest.mark.parametrize("learn", LEARN.values(), ids=LEARN)


@every
def test_hidden_atoms_are_found_again(learn):
    patches, hidden = mixtures()
    found = unit(learn(patches, 36).dictionary)  # with too few, some share an atom for good
    likeness = (hidden @ found.T).abs().amax(dim=1)
    assert (likeness > 0.97).double().mean() > 0.85
    assert (hidden @ unit(drawn(24, 16, seed=9)).T).abs().amax(dim=1).median() < 0.7


@every
def test_patches_never_seen_cost_less_than_with_the_atoms_it_began_with(learn):
    patches, _ = mixtures()
    seen = []
    learned = learn(patches[:1500], 30, watch=seen.append)
    costs = [
        objective(held, atoms, encode(held, atoms, 0.3).values, 0.3).mean()
        for held in [patches[1500:]]
        for atoms in (seen[0], learned.dictionary)
    ]
    assert costs[1] < 0.8 * costs[0]
    assert learned.objectives[-5:].mean() < 0.8 * learned.objectives[:1].mean()
    assert torch.equal(seen[-1], learned.dictionary) and len(seen) == len(learned.objectives)
    assert not torch.equal(seen[0], seen[1])


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_atoms_stay_short_and_keep_the_dtype(learn, dtype):
    learned = learn(mixtures(300)[0].to(dtype), 24)
    assert learned.dictionary.dtype == dtype and learned.dictionary.shape == (24, 16)
    assert (learned.dictionary.norm(dim=1) <= 1 + 1e-5).all()


@every
def test_a_seed_decides_everything(learn):
    patches, _ = mixtures(300)
    first, again, other = (learn(patches, 24, seed=seed).dictionary for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_the_rule_is_a_step_down_the_slope_and_length_one():
    patches, _ = mixtures(50)
    seen = []
    olshausen_field(patches, 5, 0.3, rate=0.2, steps=2, batch=50, seed=3, watch=seen.append)
    before = seen[0].clone().requires_grad_()
    codes = splitting(patches, seen[0], 0.3, module.STEPS).values
    loss = (patches - codes @ before).square().sum(dim=1).mean() / 2
    (slope,) = torch.autograd.grad(loss, before)
    torch.testing.assert_close(seen[1], unit(seen[0] - 0.2 * slope))


def test_the_first_batch_alone_decides_the_first_online_step():
    patches, _ = mixtures(50)
    seen = []
    online(patches, 5, 0.3, batch=50, epochs=1, seed=3, watch=seen.append)
    start = unit(torch.randn(5, 16, generator=torch.Generator().manual_seed(3)).double())
    codes = splitting(patches, start, 0.3, module.STEPS).values
    expected = module._update_atoms(start, codes.T @ codes, codes.T @ patches)
    torch.testing.assert_close(seen[0], expected)


@pytest.mark.parametrize("atoms", [3, 49, 50, 120])
def test_the_descent_never_goes_up_and_ends_at_the_best_atoms_within_length_one(atoms):
    codes, patches = drawn(400, atoms), drawn(400, 9, seed=1)
    used, wanted = codes.T @ codes, codes.T @ patches
    found = unit(drawn(atoms, 9, seed=2))
    heights = []
    for _ in range(300):
        found = module._update_atoms(found, used, wanted)
        heights.append((found @ found.T * used).sum() / 2 - (found * wanted).sum())
    assert (torch.stack(heights).diff() <= 1e-9 * abs(heights[0])).all()
    slope = used @ found - wanted  # 0 inside the ball, straight outwards on its surface
    lengths = found.norm(dim=1, keepdim=True)
    outwards = (slope * found).sum(dim=1, keepdim=True).clamp(max=0) * found / lengths**2
    outwards = outwards * (lengths > 1 - 1e-9)
    torch.testing.assert_close(slope, outwards, atol=1e-3 * wanted.abs().max().item(), rtol=0)


def test_an_atom_of_no_use_becomes_a_strong_patch():
    used, atoms, chosen = torch.eye(4).double(), drawn(4, 3), drawn(5, 3, seed=1)
    used[2, 2] = 0
    revived = module._replace_dead(atoms.clone(), used, chosen)
    strongest = chosen[chosen.norm(dim=1).argmax()]
    torch.testing.assert_close(revived[2], strongest / strongest.norm())
    assert torch.equal(revived[[0, 1, 3]], atoms[[0, 1, 3]])
    assert torch.equal(module._replace_dead(atoms.clone(), used, 0 * chosen), atoms)


def forms(rows):
    """For rows [count, size * size]: the share of pixels that carry the energy, how much the
    power spectrum prefers one orientation (0 to 1), and the spread of frequencies over their mean.
    """
    size, energy = math.isqrt(rows.shape[1]), rows.square()
    extent = energy.sum(dim=1) ** 2 / energy.square().sum(dim=1) / rows.shape[1]
    power = torch.fft.fft2(rows.reshape(-1, size, size), s=(32, 32)).abs().square()
    power = power / power.sum(dim=(1, 2), keepdim=True)
    down, across = torch.meshgrid(torch.fft.fftfreq(32), torch.fft.fftfreq(32), indexing="ij")
    frequency, angle = torch.hypot(down, across), torch.atan2(down, across)
    tuning = (power * torch.exp(2j * angle)).sum(dim=(1, 2)).abs()
    mean = (power * frequency).sum(dim=(1, 2))
    spread = (power * frequency**2).sum(dim=(1, 2)) - mean**2
    return extent, tuning, spread.sqrt() / mean


def gabor_like(rows):
    """The share of rows that are localised, oriented and band-pass at once."""
    extent, tuning, band = forms(rows)
    return ((extent < 0.25) & (tuning > 0.5) & (band < 0.6)).double().mean().item()


@pytest.mark.parametrize(
    "size, learn",
    [
        (14, lambda patches: online(patches, 196, 1.0, batch=250, epochs=6, seed=0)),
        (16, lambda rows: olshausen_field(rows, 192, 1.0, rate=1, steps=150, batch=250, seed=0)),
    ],
)
def test_natural_pictures_give_edges_and_pca_random_and_patches_do_not(size, learn):
    patches = whitened_patches(size, 8_000, seed=0)
    assert gabor_like(learn(patches).dictionary) > 0.4
    components = torch.from_numpy(PCA().fit(patches.numpy()).components_)
    strong = patches[patches.norm(dim=1).argsort(descending=True)[:2_000]]
    for rows in (components, drawn(400, size * size).float(), strong):
        assert gabor_like(rows) < 0.2


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"rate": 0}, "rate must be above 0 and steps 1 or more, not 0 and 400"),
        ({"steps": 0}, "rate must be above 0 and steps 1 or more, not 0.5 and 0"),
        ({"batch": 301}, "a batch of 301 cannot be drawn from 300 samples"),
    ],
)
def test_what_cannot_be_learned_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        LEARN["olshausen_field"](mixtures(300)[0], 24, **wrong)


@every
@pytest.mark.parametrize(
    "patches, atoms, message",
    [
        (drawn(300, 4) / 0, 5, "patches must be finite numbers"),
        (drawn(300), 5, r"patches must be \[1 or more, 1 or more\], not \[300\]"),
        (drawn(300, 4), 0, "the number of atoms must be above 0, not 0"),
    ],
)
def test_patches_and_atoms_that_make_no_sense_are_said(learn, patches, atoms, message):
    with pytest.raises(ValueError, match=message):
        learn(patches, atoms)


def test_an_epoch_is_the_least():
    with pytest.raises(ValueError, match="the number of epochs must be above 0, not 0"):
        online(drawn(300, 4), 5, 0.3, batch=100, epochs=0, seed=0)
