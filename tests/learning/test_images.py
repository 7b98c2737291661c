import pytest
import torch
from skimage import color, data

from course.learning import images


@pytest.mark.parametrize("name", images.PHOTOGRAPHS)
def test_every_photograph_is_grey_between_black_and_white(name):
    picture = images.photograph(name)
    assert picture.dtype == torch.float32 and picture.dim() == 2 and min(picture.shape) >= 300
    assert 0 <= picture.min() < 0.25 and 0.7 < picture.max() <= 1


def test_grey_is_what_scikit_image_calls_grey():
    torch.testing.assert_close(
        images.photograph("coffee").double(), torch.tensor(color.rgb2gray(data.coffee())),
        atol=1e-6, rtol=0,
    )  # fmt: skip


def test_a_grey_file_is_only_rescaled():
    camera = images.photograph("camera")
    assert torch.equal((camera * 255).round().to(torch.uint8), torch.tensor(data.camera()))


def test_a_notebook_that_computes_in_float64_gets_float32_too():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        pictures = [images.photograph(name) for name in ("camera", "coffee")]
    finally:
        torch.set_default_dtype(before)
    assert [picture.dtype for picture in pictures] == [torch.float32] * 2


def test_opacity_does_not_change_the_grey():
    colours = torch.randint(256, (5, 7, 4), generator=torch.Generator().manual_seed(0))
    colours = colours.to(torch.uint8)
    assert torch.equal(images.grey(colours), images.grey(colours[..., :3]))


def test_changing_a_photograph_changes_no_later_one():
    images.photograph("camera").zero_()
    assert images.photograph("camera").mean() > 0.4


def test_natural_images_come_in_the_order_of_their_names():
    pictures = images.natural_images()
    assert len(pictures) == len(images.NATURAL) >= 8
    for name, picture in zip(images.NATURAL, pictures, strict=True):
        assert torch.equal(picture, images.photograph(name))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_patch_is_cut_from_the_image_and_every_place_is_reached(size):
    image = torch.arange(35.0).reshape(5, 7)
    cut = images.patches(image, size, 600, seed=0)
    assert cut.shape == (600, size, size)
    corners = {divmod(int(patch[0, 0]), 7) for patch in cut}
    assert corners == {(i, j) for i in range(6 - size) for j in range(8 - size)}
    for patch in cut:
        i, j = divmod(int(patch[0, 0]), 7)
        assert torch.equal(patch, image[i : i + size, j : j + size])


def test_patches_are_a_copy_decided_by_their_seed():
    image = images.photograph("china")
    first, again, other = (images.patches(image, 14, 50, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    before = image.clone()
    first.zero_()
    assert torch.equal(image, before)


def test_patches_of_a_transposed_view():
    image = torch.arange(12.0).reshape(3, 4).T
    (patch,) = images.patches(image, 3, 1, seed=0)
    assert any(torch.equal(patch, image[i : i + 3]) for i in range(2))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: images.photograph("chna"), "no photograph 'chna', the nearest is 'china'"),
        (lambda: images.photograph(3), "no photograph 3"),
        (lambda: images.patches(torch.ones(4, 4, 3), 2, 1, 0), r"two axes .* not \[4, 4, 3\]"),
        (lambda: images.patches(torch.ones(4, 9), 5, 1, 0), r"5 x 5 cannot be cut from \[4, 9\]"),
        (lambda: images.patches(torch.ones(4, 9), 0, 1, 0), "0 x 0 cannot be cut"),
        (lambda: images.patches(torch.ones(4, 9), 2, 0, 0), "at least 1, not 0"),
        (lambda: images.grey(torch.ones(4, 9)), "bytes .* not torch.float32"),
        (lambda: images.grey(torch.ones(4, 9, 2, dtype=torch.uint8)), r"not \[4, 9, 2\]"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
