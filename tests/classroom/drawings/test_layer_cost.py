import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from course.classroom.drawings import layer_cost

FITS = {"neurons cut": 20_000, "images cut": 5_000}


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("agg")
    yield
    plt.close("all")


def seconds(n):
    return {"arithmetic": 1e-9 * n * n, "neurons cut": 2e-6 * n, "images cut": 4e-9 * n * n}


def test_the_readers_layer_is_a_dot_on_each_line():
    axes = layer_cost.draw(seconds, 1000, FITS)
    dots = [line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata()) == 1]
    assert dots == [[[1000, pytest.approx(value)]] for value in seconds(1000).values()]
    whole = {line.get_label(): line for line in axes.lines if len(line.get_xdata()) > 2}
    assert list(whole) == ["arithmetic", "network,\nneurons cut", "network,\nimages cut"]
    assert len({line.get_linestyle() for line in whole.values()}) == 3
    n, took = whole["network,\nneurons cut"].get_xydata()[-1]
    assert (n, took) == (50_000, pytest.approx(0.1))


def test_the_largest_layers_that_fit_are_marked_where_the_picture_shows_them():
    texts = [text.get_text() for text in layer_cost.draw(seconds, 1000, FITS).texts]
    assert {"neurons cut: memory full", "images cut: memory full"} <= set(texts)
    beyond = layer_cost.draw(seconds, 1000, {"neurons cut": 60_000, "images cut": 100})
    assert not [text for text in beyond.texts if "memory" in text.get_text()]


@pytest.mark.parametrize(("neurons", "said"), [
    (1_000, "1,000 neurons: neurons cut, network 2 x arithmetic; images cut, network 4 x "
     "arithmetic"),
    (10_000, "10,000 neurons: neurons cut, network 0.2 x arithmetic; images cut, memory too small"),
])  # fmt: skip
def test_the_title_says_what_each_cut_costs_and_whether_it_fits(neurons, said):
    axes = layer_cost.draw(seconds, neurons, FITS)
    assert " ".join(axes.get_title(loc="left").split()) == said
