import ipywidgets
import pytest

from course.classroom import widgets


def test_every_move_of_a_slider_draws_again_with_all_values(monkeypatch):
    drawn, displayed = [], []
    monkeypatch.setattr(widgets, "film_strip", lambda draw, frames: frames)
    monkeypatch.setattr(widgets, "display", lambda *things: displayed.extend(things))
    monkeypatch.setattr(widgets.plt, "close", lambda strip: None)
    widgets.sliders(
        lambda rate, steps: drawn.append((rate, steps)),
        rate=widgets.slider("learning rate", 0.0, 2.0, start=0.5, step=0.1),
        steps=widgets.slider("steps", 1, 9, start=4),
    )
    rate, steps, picture = displayed[0].children
    rate.value, steps.value = 1.5, 7
    assert drawn == [(0.5, 4), (1.5, 4), (1.5, 7)]
    assert isinstance(picture, ipywidgets.Output)


def test_whole_numbers_make_a_slider_of_whole_numbers():
    ranks = widgets.slider("ranks", 1, 64, start=4)
    rate = widgets.slider("rate", 0, 5, start=1.0)
    assert (ranks.description, ranks.min, ranks.max, ranks.value, ranks.step) == (
        "ranks", 1, 64, 4, 1,
    )  # fmt: skip
    assert isinstance(ranks.value, int) and isinstance(rate.value, float) and rate.step == 0.05


def test_a_slider_that_starts_outside_is_refused():
    with pytest.raises(ValueError, match=r"slider 'rate' starts at 7, outside \[0, 5\]"):
        widgets.slider("rate", 0, 5, start=7)


def test_a_label_that_would_be_cut_is_refused():
    assert widgets.slider("share that leaves the pod", 0, 5, start=1)
    with pytest.raises(ValueError, match="a label has at most 26 letters, not the 32 of 'bytes"):
        widgets.slider("bytes that each of the pods send", 0, 5, start=1)
