"""The dot is at the lowest validation loss, and the title says how far above it the run ends."""

from course.classroom.drawings import rise

LOSSES = {"training": (range(4), [2.0, 1.0, 0.5, 0.1]),
          "validation": (range(4), [2.0, 0.8, 1.0, 1.2])}  # fmt: skip


def test_the_lowest_validation_loss_is_a_dot_and_the_rise_is_told():
    axes = rise.draw(LOSSES, "Run 3", "epoch", "loss (nats)")
    training, validation, dot = axes.lines
    assert list(training.get_ydata()) == LOSSES["training"][1]
    assert list(validation.get_ydata()) == LOSSES["validation"][1]
    assert dot.get_xydata().tolist() == [[1, 0.8]] and axes.get_yscale() == "log"
    title = axes.get_title(loc="left").replace("\n", " ")
    assert title == "Run 3: the validation loss ends 50% above its lowest value (dot)"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "loss (nats)")
