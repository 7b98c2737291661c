import os

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import color, data

from course.learning.images import photographs as images

needs_data = pytest.mark.skipif(
    not os.environ.get("COURSE_DATA"), reason="COURSE_DATA names no directory of staged data"
)


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


@needs_data
@pytest.mark.parametrize("split, count", [("train", 200), ("val", 100)])
def test_photographs_of_bsds500_are_grey_and_of_one_shape_lying_or_standing(split, count):
    pictures = images.bsds500(split)
    assert len(pictures) == count
    assert {tuple(picture.shape) for picture in pictures} == {(321, 481), (481, 321)}
    for picture in pictures:
        assert picture.dtype == torch.float32 and 0 <= picture.min() < picture.max() <= 1


@needs_data
def test_training_and_validation_photographs_of_bsds500_differ():
    train, val = ({picture.sum().item() for picture in images.bsds500(s)} for s in ("train", "val"))
    assert not train & val


def test_bsds500_comes_in_the_order_of_its_names(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    (tmp_path / "bsds500" / "val").mkdir(parents=True)
    for name, level in [("20", 20), ("3", 30), ("100", 10)]:
        Image.new("L", (6, 4), level).save(tmp_path / "bsds500" / "val" / f"{name}.jpg")
    levels = [round(255 * picture.mean().item()) for picture in images.bsds500("val")]
    assert levels == [10, 20, 30]
    (tmp_path / "bsds500" / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="train must hold photographs .* holds none"):
        images.bsds500("train")
    (tmp_path / "bsds500" / "train").rmdir()
    with pytest.raises(FileNotFoundError, match="bsds500/train must be in COURSE_DATA"):
        images.bsds500("train")


@pytest.mark.parametrize("kind, mode", [("pgm", "L"), ("png", "RGB"), ("png", "RGBA")])
def test_a_picture_is_read_as_it_was_saved(tmp_path, kind, mode):
    channels = () if mode == "L" else (len(mode),)
    pixels = np.random.default_rng(0).integers(256, size=(5, 7, *channels), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"picture.{kind}")
    assert torch.equal(images.read(tmp_path / f"picture.{kind}"), images.grey(pixels))


def test_a_picture_of_few_colours_is_read_as_its_colours(tmp_path):
    coloured = Image.new("RGB", (3, 2), (255, 0, 0))
    coloured.quantize(4).save(tmp_path / "picture.png")
    torch.testing.assert_close(images.read(tmp_path / "picture.png"), torch.full((2, 3), 0.2125))


def test_pixels_of_two_bytes_are_not_clipped_in_silence(tmp_path):
    Image.fromarray(np.full((2, 3), 1000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match="pixels must be bytes, and those of .*deep.png are I"):
        images.read(tmp_path / "deep.png")


def test_a_file_without_a_picture(tmp_path):
    (tmp_path / "picture.jpg").write_bytes(b"no picture")
    with pytest.raises(OSError, match="cannot identify image file .*picture.jpg"):
        images.read(tmp_path / "picture.jpg")


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


def test_patches_of_all_images_come_mixed_and_larger_images_give_more():
    each = [torch.arange(12.0).reshape(3, 4), torch.arange(100.0, 156).reshape(7, 8)]
    cut = images.patches_of_all(each, 3, 4000, seed=0)
    assert cut.shape == (4000, 3, 3)
    corners, counts = cut[:, 0, 0].unique(return_counts=True)
    places = [0.0, 1.0] + [100.0 + 8 * i + j for i in range(5) for j in range(6)]
    assert corners.tolist() == places
    assert counts.min() > 90 and counts.max() < 160  # 125 for each of 32 places
    from_first = cut[:, 0, 0] < 100
    assert from_first[:2000].any() and from_first[2000:].any()
    for patch in cut[:50]:
        steps = patch - patch[0, 0]
        width = 4 if patch[0, 0] < 100 else 8
        assert torch.equal(steps, torch.tensor([[0.0, 1, 2]]) + width * torch.arange(3.0)[:, None])


def test_patches_of_all_are_decided_by_their_seed():
    each = [images.photograph(name) for name in ("china", "camera")]
    first, again, other = (images.patches_of_all(each, 8, 50, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_patches_keep_the_kind_of_number(dtype):
    image = torch.rand(9, 9, generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert images.patches(image, 3, 2, 0).dtype == dtype
    assert images.patches_of_all([image, image], 3, 2, 0).dtype == dtype


NAN = torch.full((4, 9), float("nan"))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: images.photograph("chna"), "no photograph 'chna', the nearest is 'china'"),
        (lambda: images.photograph(3), "no photograph 3"),
        (lambda: images.patches(torch.ones(4, 4, 3), 2, 1, 0), r"two axes .* not \[4, 4, 3\]"),
        (lambda: images.patches(torch.ones(4, 9), 5, 1, 0), r"5 x 5 cannot be cut from \[4, 9\]"),
        (lambda: images.patches(torch.ones(4, 9), 0, 1, 0), "0 x 0 cannot be cut"),
        (lambda: images.patches(torch.ones(4, 9), 2, 0, 0), "must be above 0, not 0"),
        (lambda: images.patches(NAN, 2, 1, 0), "finite numbers, and some are nan"),
        (lambda: images.patches(torch.ones(4, 9).byte(), 2, 1, 0), "floating .* not torch.uint8"),
        (lambda: images.patches_of_all([], 2, 1, 0), "at least 1 image, not from 0"),
        (lambda: images.patches_of_all([NAN], 2, 1, 0), "finite numbers"),
        (
            lambda: images.patches_of_all([torch.ones(9, 9), torch.ones(4, 9)], 5, 1, 0),
            r"5 x 5 cannot be cut from \[4, 9\]",
        ),
        (lambda: images.patches_of_all([torch.ones(9, 9)], 0, 1, 0), "0 x 0 cannot be cut"),
        (lambda: images.patches_of_all([torch.ones(9, 9)], 2, 0, 0), "must be above 0, not 0"),
        (lambda: images.bsds500("test"), "'train' or 'val', not 'test'"),
        (lambda: images.grey(torch.ones(4, 9)), "bytes .* not torch.float32"),
        (lambda: images.grey(torch.ones(4, 9, 2, dtype=torch.uint8)), r"not \[4, 9, 2\]"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
