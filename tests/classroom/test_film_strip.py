import ipywidgets
import matplotlib.pyplot as plt
import pytest

from course.classroom import film_strip, widgets
from course.classroom.figures import curves


@pytest.fixture
def drawn(monkeypatch):
    """What is displayed; figures are closed at the end."""
    shown = []
    monkeypatch.setattr(widgets, "display", lambda *things: shown.extend(things))
    yield shown
    plt.close("all")


def line(slope, start=0):
    curves({"line": ([0, 1], [start, start + slope])}, f"slope {slope}", "x", "y")


def captions(strip):
    return [axes.get_title(loc="left") for axes in strip.axes if axes.images]


def test_the_first_control_goes_from_end_to_end(drawn):
    widgets.sliders(
        line, slope=widgets.slider("slope", 0, 9, 4), start=widgets.slider("b", 0, 1, 1)
    )
    strip = drawn[1]
    assert captions(strip) == ["slope: 0", "slope: 3", "slope: 6", "slope: 9"]
    pixels = [axes.images[0].get_array() for axes in strip.axes]
    assert any((one != pixels[0]).any() for one in pixels[1:] if one.shape == pixels[0].shape)


def test_the_moments_of_a_film_can_be_chosen(drawn):
    film = [{"slope": 1.5}, {"slope": 2.0, "start": 3}]
    widgets.sliders(line, film=film, slope=widgets.slider("slope", 0.0, 9.0, 4.0),
                    start=widgets.slider("b", 0, 5, 1))  # fmt: skip
    assert captions(drawn[1]) == ["slope: 1.5", "slope: 2, b: 3"]


def test_captions_have_numbers_as_people_write_them():
    controls = {"n": widgets.slider("neurons", 500, 50_000, 500), "r": widgets.slider("η", 0, 1, 0)}
    assert film_strip.caption(controls, {"n": 16_000, "r": 0.05}) == "neurons: 16,000, η: 0.05"
    assert film_strip.caption(controls, {"n": 1250.0, "r": "FDR"}) == "neurons: 1,250, η: FDR"


def test_a_menu_has_its_places_in_order():
    assert film_strip.places(ipywidgets.Dropdown(options={"a": 1, "b": 2})) == [1, 2]
    assert film_strip.places(ipywidgets.SelectionSlider(options=[0.1, 0.5])) == [0.1, 0.5]
    assert film_strip.places(widgets.slider("x", 1, 5, 1, step=2)) == [1, 3, 5]


def test_the_figure_of_a_frame_is_closed_and_no_other():
    other = plt.figure()
    assert film_strip.frame(line, slope=1).ndim == 3
    assert plt.get_fignums() == [other.number]
    plt.close(other)


def test_a_frame_keeps_its_pixels(drawn):
    widgets.sliders(line, slope=widgets.slider("slope", 0, 9, 4))
    strip = drawn[1]
    for axes in strip.axes:
        places = axes.get_window_extent()
        high, wide = axes.images[0].get_array().shape[:2]
        assert (places.width, places.height) == (pytest.approx(wide), pytest.approx(high))


def test_wide_pictures_stand_below_one_another():
    def wide(x):
        plt.figure(figsize=(9, 2))

    strip = film_strip.film_strip(wide, {"one": {"x": 1}, "two": {"x": 2}})
    first, second = (axes.get_position() for axes in strip.axes)
    assert first.x0 == pytest.approx(second.x0, abs=0.01) and first.y0 > second.y0
    plt.close("all")
