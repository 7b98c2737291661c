import pytest
import torch

from course.classroom.drawings.springs import show_springs, springs
from course.parallel.elastic.stability import largest_alpha


def test_two_workers_and_their_centre_by_hand():
    xs, c = springs(0.1, 0.2, 1, workers=2, steps=2, noise=0.0, start=1.0)
    torch.testing.assert_close(xs[:, 0], torch.tensor([1.0, 0.9, 0.81 - 0.2 * -0.1]))
    torch.testing.assert_close(c, torch.tensor([1.0, 1.0, 1.0 + 2 * 0.2 * -0.1]))


def test_between_meetings_there_is_no_pull():
    xs, c = springs(0.1, 0.2, 3, noise=0.0, steps=3, start=1.0)
    torch.testing.assert_close(xs[-1], torch.full((4,), 0.9**3))
    assert c.tolist() == [1.0] * 4


@pytest.mark.parametrize("share, settles", [(0.98, True), (1.02, False)])
def test_the_bound_is_where_the_walk_begins_to_grow(share, settles):
    alpha = share * largest_alpha(0.1, 4)
    _, c = springs(0.1, alpha, 1, noise=0.0, steps=400)
    assert (c[-1].abs() < 10) == settles


@pytest.mark.parametrize("alpha, words", [(0.22, "at 1.8 in step 20"), (0.8, "more than 100 away")])
def test_the_title_says_where_the_centre_is(alpha, words):
    axes = show_springs(0.1, alpha, 1)
    assert words in axes.get_title(loc="left").replace("\n", " ")
    assert len(axes.lines) == 6 and axes.lines[4].get_linestyle() == "--"
