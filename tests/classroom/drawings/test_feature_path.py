"""The path of a feature: five pictures in order, the patch where it is, the four means."""

import torch

from course.classroom.drawings import feature_path


def drawn():
    match = torch.linspace(-1, 2, 81).view(9, 9)
    pooled = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    atom = torch.tensor([[0.5, -0.25], [0.0, 0.1]])
    return feature_path.draw(
        torch.rand(10, 10), (3, 6), atom, match, match.clamp(min=0), pooled, "the path"
    )


def test_five_pictures_in_the_order_of_the_path():
    assert [axes.get_title() for axes in drawn()] == list(feature_path.WAY)


def test_the_patch_is_marked_in_the_frame_and_its_match_on_both_maps():
    frame, _, match, rectified, _ = drawn()
    (box,) = frame.patches
    assert (box.get_x(), box.get_y()) == (5.5, 2.5) and box.get_width() == 2
    for axes in match, rectified:
        assert (list(axes.lines[0].get_xdata()), list(axes.lines[0].get_ydata())) == ([6], [3])


def test_the_means_stand_in_their_quarters():
    pooled = drawn()[-1]
    at = {text.get_text(): text.get_position() for text in pooled.texts}
    assert at["0.100"] == (0, 0) and at["0.200"] == (1, 0) and at["0.300"] == (0, 1)


def test_match_rectified_and_pooled_have_the_same_greys_and_grey_is_zero():
    _, atom, *maps = (axes.images[0].get_clim() for axes in drawn())
    assert maps == [(-2, 2)] * 3
    assert atom == (-0.5, 0.5)
