from course.classroom.drawings import framework_steps
from course.cluster.frameworks.chrome import BACKWARD, STEP, Work

WORKS = {
    "alone": [Work("arithmetic", 0.001, 0.004), Work(STEP, 0, 0.005)],
    "two": [Work("all_gather", 0.0, 0.002), Work("all_reduce", 0.006, 0.009),
            Work("arithmetic", 0.002, 0.004), Work("arithmetic", 0.00401, 0.006),
            Work(STEP, 0, 0.010)],
}  # fmt: skip


def bars(axes, row):
    found = [(p.get_x(), p.get_x() + p.get_width()) for p in axes.patches
             if abs(p.get_y() + p.get_height() / 2 - row) < 0.1]  # fmt: skip
    return [tuple(round(x, 6) for x in pair) for pair in sorted(found)]


def test_each_framework_has_a_lane_and_one_for_its_messages():
    axes = framework_steps.draw(WORKS, "The answer")
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["alone, 5 ms", "two, 10 ms", "two, messages"]
    assert axes.get_title(loc="left") == "The answer"
    assert bars(axes, 0) == [(1, 4)]
    assert bars(axes, 1) == [(2, 6)]  # the gap is too short to be seen
    assert bars(axes, 2) == [(0, 2), (6, 9)]


def test_the_end_of_each_step_is_marked_and_inside():
    axes = framework_steps.draw(WORKS, "")
    assert [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata())] == [5, 10]
    assert axes.get_xlim()[1] > 10


def test_a_line_goes_from_where_backward_begins_to_where_it_ends():
    backward = [Work(BACKWARD, 0.002, 0.004), Work(BACKWARD, 0.006, 0.007)]
    axes = framework_steps.draw(WORKS | {"three": [*WORKS["two"], *backward]}, "")
    (line,) = (line for line in axes.lines if line.get_marker() == "|" and len(line.get_xdata()))
    assert [*line.get_xdata()] == [2, 7] and len({*line.get_ydata()}) == 1
    assert bars(axes, 3) == bars(axes, 1) and len(axes.get_yticks()) == 5


def test_each_kind_of_message_has_a_key():
    keys = {text.get_text() for text in framework_steps.draw(WORKS, "").get_legend().get_texts()}
    assert keys == {"arithmetic", "all_gather", "all_reduce"}
