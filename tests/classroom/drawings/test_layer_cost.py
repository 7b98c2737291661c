import pytest

from course.classroom.drawings import layer_cost
from course.cluster.hardware import FDR, P100

FITS = {"neurons cut": 20_000, "images cut": 5_000}


def seconds(n):
    return {"arithmetic": 1e-9 * n * n, "neurons cut": 2e-6 * n, "images cut": 4e-9 * n * n}


def test_what_a_step_costs_is_what_the_formula_says():
    took = layer_cost.seconds_of(1000, 64, 4, P100, FDR._replace(latency_s=0))
    sent = 8 * 1000 * 3 / 4 / FDR.bytes_per_s
    assert took["neurons cut"] == pytest.approx(64 * sent)
    assert took["images cut"] == pytest.approx(1000 * sent)
    even = 4 / 3 * 3 * P100.flops_per_s / FDR.bytes_per_s
    for cut, n, batch in (("neurons cut", even, 64), ("images cut", 1000, even)):
        took = layer_cost.seconds_of(n, batch, 4, P100, FDR._replace(latency_s=0))
        assert took[cut] == pytest.approx(took["arithmetic"])
    late = layer_cost.seconds_of(1000, 64, 4, P100, FDR)
    assert late["neurons cut"] - 64 * sent == pytest.approx(2 * 3 * 2 * FDR.latency_s)


def test_cut_by_neurons_the_weights_of_a_layer_fill_all_devices_together():
    found = layer_cost.fits(ranks=4, device=P100, batch=1, cable=FDR)
    assert 16 * found["images cut"] ** 2 == pytest.approx(16e9)
    assert 16 * found["neurons cut"] ** 2 == pytest.approx(64e9)


def test_the_readers_layer_is_a_dot_on_each_line():
    axes = layer_cost.draw(seconds, 1000, FITS)
    dots = [line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata()) == 1]
    assert dots == [[[1000, pytest.approx(value)]] for value in seconds(1000).values()]
    whole = {line.get_label(): line for line in axes.lines if len(line.get_xdata()) > 2}
    assert list(whole) == ["arithmetic", "network, neurons cut", "network, images cut"]
    assert len({line.get_linestyle() for line in whole.values()}) == 3
    n, took = whole["network, neurons cut"].get_xydata()[-1]
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
