import pytest

from course.classroom.drawings import overhead

SIZES = [1, 4, 16, 64, 10_000]
TOOK = [1e-3 + 1e-6 * (size - 1) for size in SIZES]  # fixed: as much as 1,000 pixels


def test_the_model_runs_through_both_ends_and_the_dots_are_measured():
    axes = overhead.draw(SIZES, TOOK)
    model, alone, measured = axes.lines
    grid, seconds = model.get_data()
    assert (grid[0], grid[-1]) == (1, 10_000) and seconds == pytest.approx(1e-3 + 1e-6 * (grid - 1))
    assert measured.get_ydata() == pytest.approx(TOOK) and measured.get_linestyle() == "None"
    assert alone.get_ydata()[-1] == pytest.approx(TOOK[-1])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_the_title_says_up_to_which_batch_the_fixed_cost_prevails():
    assert overhead.said(SIZES, TOOK) == "Up to a batch of about 1,000 most of a step is fixed cost"


@pytest.mark.parametrize("busy", [
    [1e-3, 1e-3, 5e-3, 1e-3, 1e-2], [1e-3, 1e-3, 1e-3, 1e-3, 0.5e-3],
])  # fmt: skip
def test_on_a_busy_machine_the_title_claims_nothing(busy):
    assert overhead.said(SIZES, busy) == overhead.BUSY
