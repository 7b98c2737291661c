import math

import pytest
import torch
from sklearn.decomposition import PCA

from course.learning.images import whitening
from course.learning.images.photographs import natural_images, patches_of_all


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def wave(down, across, height, width, phase):
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    turns = down * rows.double() / height + across * columns / width
    return torch.cos(2 * math.pi * turns + phase)


def uneven(count, pixels, seed=0):
    """Patches whose pixels hang together."""
    return drawn(count, pixels, seed=seed) @ drawn(pixels, pixels, seed=seed + 1) + 3


def covariance(rows):
    return torch.cov(rows.T, correction=0)


GOLDEN = {1: 1.0, 50: 49.81, 100: 93.94, 200: 73.58, 256: 17.48}


@pytest.mark.parametrize("frequency, gain", GOLDEN.items())
def test_the_filter_rises_with_the_frequency_and_ends_at_the_cutoff(frequency, gain):
    found = whitening.response(torch.tensor(float(frequency)), 200)
    assert math.isclose(found, gain, abs_tol=5e-3)


def test_the_filter_peaks_where_its_slope_says():
    frequencies = torch.arange(0, 300, 0.01, dtype=torch.float64)
    peak = frequencies[whitening.response(frequencies, 200).argmax()]
    assert math.isclose(peak, 200 / 4**0.25, abs_tol=0.01)


@pytest.mark.parametrize("frequency", [1, 50, 200])
@pytest.mark.parametrize("phase", [0.0, 1.0])
def test_a_wave_in_a_picture_of_512_is_multiplied_and_not_moved(frequency, phase):
    image = wave(0, frequency, 512, 512, phase)
    whitened = 512 * whitening.whiten(image, cutoff=200 / 512)
    expected = GOLDEN[frequency] * image[4:-4, 4:-4]
    torch.testing.assert_close(whitened, expected, atol=5e-3, rtol=0)


@pytest.mark.parametrize("height, width", [(12, 12), (13, 20), (20, 13), (11, 9)])
def test_every_direction_counts_cycles_per_pixel_in_pictures_of_any_shape(height, width):
    for down, across in [(1, 0), (0, 2), (3, 2), (2, -3)]:
        image = wave(down, across, height, width, 0.3)
        frequency = torch.tensor(math.hypot(down / height, across / width)).double()
        expected = whitening.response(frequency, 0.4) * image
        torch.testing.assert_close(whitening.whiten(image, border=0), expected)


def test_a_transposed_view_is_whitened_like_its_copy():
    image = drawn(15, 22).T
    torch.testing.assert_close(whitening.whiten(image), whitening.whiten(image.T.contiguous()).T)


def test_a_jump_between_opposite_edges_is_felt_at_the_border_most():
    image = torch.linspace(0, 1, 64).double().expand(64, 64)
    whole = whitening.whiten(image, border=0)
    assert whole[:, 0].abs().max() > 5 * whole[:, 4:-4].abs().max()
    assert torch.equal(whitening.whiten(image), whole[4:-4, 4:-4])


def power(image, low, high):
    """Mean power of the waves of `low` to `high` cycles per pixel."""
    down, across = (torch.fft.fftfreq(n) for n in image.shape)
    frequency = torch.hypot(down[:, None], across)
    spectrum = torch.fft.fft2(image - image.mean()).abs() ** 2 / image.numel()
    return spectrum[(frequency > low) & (frequency <= high)].mean()


def test_coarse_and_fine_waves_of_photographs_come_near_in_power():
    for image in natural_images():
        whitened = whitening.whiten(image)
        assert 10 < power(image, 0.01, 0.03) / power(image, 0.1, 0.2) < 400
        assert 0.3 < power(whitened, 0.01, 0.03) / power(whitened, 0.1, 0.2) < 7
        assert power(whitened, 0.6, 0.71) < power(whitened, 0.1, 0.2) / 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_number_scales_all_images_to_the_variance(dtype):
    images = [drawn(20, 30).to(dtype), drawn(16, 16, seed=1).to(dtype) * 3]
    scaled = whitening.whiten_all(images, variance=0.1)
    variances = torch.stack([image.var(correction=0) for image in scaled])
    torch.testing.assert_close(variances.mean(), torch.tensor(0.1, dtype=dtype))
    ratios = [a / whitening.whiten(b) for a, b in zip(scaled, images, strict=True)]
    everywhere = torch.cat([ratio.flatten() for ratio in ratios])
    torch.testing.assert_close(everywhere, everywhere[:1].expand_as(everywhere))
    assert scaled[0].dtype == dtype


def test_patches_are_rows_of_mean_0_scaled_by_one_number():
    rows = whitening.whitened_patches(14, 2000, seed=0)
    assert rows.shape == (2000, 196) and rows.dtype == torch.float32
    assert rows.mean(dim=1).abs().max() < 1e-5
    assert math.isclose(rows.square().mean(), 1, rel_tol=1e-5)
    cut = patches_of_all(whitening.whiten_all(natural_images()), 14, 2000, 0).flatten(1)
    centred = cut - cut.mean(dim=1, keepdim=True)
    ratio = rows.norm(dim=1) / centred.norm(dim=1)
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))


def test_whitened_patches_are_decided_by_seed_and_images_and_far_from_normal():
    first, again, other = (whitening.whitened_patches(8, 500, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.pow(4).mean() > 6  # 3 if the pixels were normal
    noise = whitening.whitened_patches(8, 500, 0, [drawn(64, 64)])
    assert noise.pow(4).mean() < 3.5


def test_zca_makes_the_covariance_the_identity():
    patches = uneven(200, 9)
    whitened = whitening.zca(patches, eps=0).apply(patches)
    identity = torch.eye(9, dtype=torch.float64)
    torch.testing.assert_close(covariance(whitened), identity, atol=1e-10, rtol=0)
    torch.testing.assert_close(whitened.mean(dim=0), torch.zeros(9).double(), atol=1e-10, rtol=0)


def test_zca_is_whitened_principal_components_turned_back():
    patches = uneven(100, 6)
    pca = PCA(whiten=True, svd_solver="full").fit(patches.numpy())
    theirs = torch.tensor(pca.transform(patches.numpy()) @ pca.components_) * (100 / 99) ** 0.5
    torch.testing.assert_close(whitening.zca(patches, eps=0).apply(patches), theirs)


@pytest.mark.parametrize("eps", [0.01, 1.0])
def test_eps_leaves_small_directions_small(eps):
    patches = uneven(300, 7)
    before = torch.linalg.eigvalsh(covariance(patches))
    after = torch.linalg.eigvalsh(covariance(whitening.zca(patches, eps).apply(patches)))
    torch.testing.assert_close(after, before / (before + eps))


def test_zca_has_no_preferred_direction_and_can_be_undone():
    patches = uneven(50, 30) - 3
    patches = patches - patches.mean(dim=1, keepdim=True)
    learned = whitening.zca(patches, eps=0.1)
    torch.testing.assert_close(learned.matrix, learned.matrix.T)
    new = uneven(5, 30, seed=7)
    torch.testing.assert_close(learned.undo(learned.apply(new)), new)


def test_zca_of_photographs_in_float32():
    patches = patches_of_all(natural_images(), 8, 3000, seed=0).flatten(1)
    learned = whitening.zca(patches, eps=1e-3)
    spread = torch.linalg.eigvalsh(covariance(learned.apply(patches)))
    assert learned.matrix.dtype == torch.float32 and spread[0] > -1e-3 and spread[-1] < 1.001


@pytest.mark.parametrize("shape", [(6, 9), (4, 5, 5), (2, 3, 7, 6)])
def test_even_contrast_takes_each_mean_away_and_divides_by_each_spread(shape):
    pictures = 0.3 * drawn(*shape) + 0.5
    even = whitening.even_contrast(pictures, constant=0.1)
    assert even.mean(dim=(-2, -1)).abs().max() < 1e-14
    spread = pictures.std(dim=(-2, -1), correction=0)
    torch.testing.assert_close(even.std(dim=(-2, -1), correction=0), spread / (spread + 0.1))
    torch.testing.assert_close(whitening.even_contrast(7 * pictures + 1, constant=0.7), even)


def test_a_flat_picture_stays_flat():
    assert torch.equal(whitening.even_contrast(torch.full((3, 4), 0.5)), torch.zeros(3, 4))


def with_nan(*shape):
    picture = drawn(*shape)
    picture[0, 0] = math.nan
    return picture


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: whitening.whiten(drawn(2, 9, 9)), r"two axes .*, not \[2, 9, 9\]"),
        (lambda: whitening.whiten(with_nan(12, 12)), "finite numbers"),
        (lambda: whitening.whiten(torch.ones(12, 12, dtype=torch.uint8)), "not torch.uint8"),
        (lambda: whitening.whiten(drawn(8, 20)), r"a border of 4 leaves nothing .*\[8, 20\]"),
        (lambda: whitening.whiten(drawn(9, 9), border=-1), "not 0.4 and -1"),
        (lambda: whitening.whiten(drawn(9, 9), cutoff=0), "above 0 .* not 0 and 4"),
        (lambda: whitening.whiten_all([]), "at least 1 image"),
        (lambda: whitening.whiten_all([torch.ones(20, 20)]), "each is constant"),
        (lambda: whitening.whitened_patches(30, 5, 0, [drawn(32, 32)]), r"30 x 30 .*\[24, 24\]"),
        (lambda: whitening.zca(drawn(4, 3, 3), 0.1), r"\[2 or more, 1 or more\], not \[4, 3, 3\]"),
        (lambda: whitening.zca(drawn(1, 3), 0.1), r"2 or more.* \[1, 3\]"),
        (lambda: whitening.zca(torch.ones(4, 3, dtype=torch.int64), 0.1), "not torch.int64"),
        (lambda: whitening.zca(with_nan(4, 3), 0.1), "finite numbers"),
        (lambda: whitening.zca(drawn(5, 9), 0), "vary in 4 of 9 directions, not 0"),
        (lambda: whitening.zca(drawn(50, 9), -0.1), "above 0 .* not -0.1"),
        (lambda: whitening.even_contrast(drawn(9)), r"not torch.float64 \[9\]"),
        (lambda: whitening.even_contrast(drawn(9, 9), 0), "above 0, not 0"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
