import math

import pytest
import torch

from course.learning.images.faces import Faces, Place, lfw_faces
from course.learning.images.frames import (
    distractor_frames,
    face_frames,
    frames,
    match_smoothness,
    random_lighting,
    smoothness,
    square,
)
from course.learning.images.photographs import photograph

PHOTOGRAPHS = [photograph(name) for name in ("camera", "flower")]
STAYS = Place(centre=(20, 18), sides=(32, 32), jitter=0.0)


def drawn(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def correlation(a, b):
    return torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]


def test_frames_say_what_they_show_and_of_whom():
    made = frames(lfw_faces("test"), PHOTOGRAPHS, 60, 0.35, seed=0)
    assert made.images.shape == (60, 1, 32, 32) and made.images.dtype == torch.float32
    assert made.images.min() >= 0 and made.images.max() <= 1
    assert made.labels.tolist() == 21 * [1] + 39 * [0]
    assert set(made.groups[:21].tolist()) <= set(range(50, 100))
    assert set(made.groups[21:].tolist()) == {-1, -2}


def test_a_seed_decides_the_frames():
    first, again, other = (
        frames(lfw_faces("train"), PHOTOGRAPHS, 20, 0.3, seed=seed).images for seed in (4, 4, 5)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert (first.flatten(1) != other.flatten(1)).any(dim=1).all()


def test_without_faces_there_are_distractors_alone():
    made = frames(lfw_faces("train"), PHOTOGRAPHS, 10, 0.0, seed=0)
    assert made.images.shape == (10, 1, 32, 32) and made.labels.sum() == 0


def test_a_face_that_may_not_move_is_cut_where_it_is_and_half_are_mirrored():
    faces = Faces(drawn(3, 50, 40), torch.tensor([7, 8, 9]), STAYS)
    made = face_frames(faces, 200, seed=0)
    mirrored = []
    for image, person in zip(made.images, made.groups.tolist(), strict=True):
        there = faces.images[person - 7, 4:36, 2:34]
        straight, turned = correlation(image, there), correlation(image, there.flip(-1))
        assert max(straight, turned) > 0.99  # not 1: some pixels are clipped
        mirrored.append(bool(turned > straight))
    assert 70 < sum(mirrored) < 130


def test_light_changes_neither_order_nor_pattern_and_stays_in_its_limits():
    squares = drawn(2000, 32, 32)
    lit = random_lighting(squares, torch.Generator().manual_seed(1))
    spread, mean = torch.std_mean(lit, dim=(1, 2, 3))
    assert 0.09 < spread.min() < 0.102 and 0.24 < spread.max() < 0.251
    assert abs(spread.log().mean() - math.log(0.1 * 0.25) / 2) < 0.03  # log-uniform
    assert 0.345 < mean.min() < 0.352 and 0.648 < mean.max() < 0.655
    assert correlation(lit[0], squares[0]) > 0.999


@pytest.mark.parametrize("side", [24, 32, 61, 100])
def test_a_square_is_the_mean_of_the_pixels_it_covers(side):
    ramp = torch.arange(120.0)[:, None] + torch.zeros(120, 110)
    cut = square(ramp, (10, 3), side)
    assert cut.shape == (32, 32)
    step = side / 32
    places = 10 + (torch.arange(32) + 0.5) * step - 0.5
    torch.testing.assert_close(cut[2:-2, 5], places[2:-2], atol=0.03 * step, rtol=0)


def test_stripes_too_fine_for_a_frame_become_grey():
    stripes = (torch.arange(100) % 2).float().expand(100, 100)
    assert (square(stripes, (0, 0), 96) - 0.5).abs().max() < 0.1


def test_a_square_that_would_reach_over_an_edge_is_moved_inside():
    image = drawn(40, 36)
    assert torch.equal(square(image, (-3, 30), 32), image[:32, 4:])
    assert square(image, (0, 0), 300).shape == (32, 32)


def test_distractors_are_never_flat():
    half_flat = torch.cat([torch.full((200, 200), 0.5), drawn(200, 200)], dim=1)
    made = distractor_frames([half_flat], 50, seed=0)
    assert (made.groups == -1).all() and made.images.std(dim=(1, 2, 3)).min() > 0.09


def test_smoothness_is_that_of_the_definition():
    image = drawn(1, 1, 32, 32)
    steps = (image[..., 1:] - image[..., :-1]).square().mean() / image.var()
    torch.testing.assert_close(smoothness(image)[0, 2], steps.log())
    fine, coarse = smoothness(torch.cat([image, torch.nn.functional.avg_pool2d(image, 5, 1, 2)]))
    assert (fine[:2] < coarse[:2]).all() and fine[2] > coarse[2]


def test_matched_distractors_are_as_smooth_as_faces():
    faces = face_frames(lfw_faces("train"), 200, seed=0).images
    others = distractor_frames(PHOTOGRAPHS, 600, seed=1).images
    kept = match_smoothness(others, faces, 200, seed=2)
    assert len(set(kept.tolist())) == 200
    aim, before, after = (smoothness(each).mean(dim=0) for each in (faces, others, others[kept]))
    assert (after - aim).norm() < 0.3 * (before - aim).norm()


def test_the_nearest_is_taken_and_none_twice():
    images = drawn(4, 1, 32, 32)
    shuffled = images[[2, 0, 3, 1]]
    assert sorted(match_smoothness(shuffled, images, 4, seed=0).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: frames(lfw_faces("train"), PHOTOGRAPHS, 10, 1.0, 0), "below 1, not 1.0"),
        (lambda: frames(lfw_faces("train"), PHOTOGRAPHS, 10, math.nan, 0), "below 1, not nan"),
        (lambda: frames(lfw_faces("train"), PHOTOGRAPHS, 0, 0.3, 0), "must be above 0, not 0"),
        (lambda: distractor_frames([], 3, 0), "from 1 photograph or more, not from 0"),
        (lambda: distractor_frames([torch.full((90, 90), 0.5)], 3, 0), "only 0 of 300 did"),
        (lambda: distractor_frames([drawn(1, 90, 90)], 3, 0), r"two axes .* \[1, 90, 90\]"),
        (lambda: match_smoothness(drawn(2, 1, 32, 32), drawn(2, 1, 32, 32), 3, 0), "3 .* from 2"),
    ],
)
def test_what_cannot_be_cut_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
