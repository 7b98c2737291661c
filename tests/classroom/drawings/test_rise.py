"""The dot is at the lowest validation loss, and the title says how far above it the run ends."""

from course.classroom.drawings import rise

LOSSES = {"training": (range(4), [2.0, 1.0, 0.5, 0.1]),
          "validation": (range(4), [2.0, 0.8, 1.0, 1.2])}  # fmt: skip


def test_the_lowest_validation_loss_is_a_dot_and_the_rise_is_told():
    both, near = rise.draw(LOSSES, "Run 3", "epoch", "loss (nats)")
    training, validation = both.lines
    assert list(training.get_ydata()) == LOSSES["training"][1]
    assert list(validation.get_ydata()) == LOSSES["validation"][1]
    assert both.get_yscale() == "log" and both.get_title(loc="left") == "Run 3: both losses"
    alone, dot = near.lines
    assert list(alone.get_ydata()) == LOSSES["validation"][1] and near.get_yscale() == "linear"
    assert alone.get_color() == validation.get_color() != dot.get_color()
    assert dot.get_xydata().tolist() == [[1, 0.8]]
    title = near.get_title(loc="left").replace("\n", " ")
    assert title == "The validation loss ends 50% above its lowest value"
    assert (near.get_xlabel(), near.get_ylabel()) == ("epoch", "loss (nats)")


def test_the_whole_rise_is_seen_on_the_scale_of_the_rise():
    _, near = rise.draw(LOSSES, "Run 3", "epoch", "loss (nats)")
    low, high = near.get_ylim()
    assert 0.5 < low < 0.8 and 1.2 < high < 1.6
