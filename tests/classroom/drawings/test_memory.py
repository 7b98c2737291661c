from course.classroom.drawings import memory

ROWS = {
    "stage 0": {"weights": 2.0, "gradients": 2.0, "optimizer": 12.0},
    "stage 3": {"weights": 0.5, "gradients": 0.5, "optimizer": 3.0},
}


def bars(axes):
    return [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width(), b.get_hatch() or "")
            for b in axes.patches]  # fmt: skip


def test_the_parts_of_a_bar_lie_end_to_end_in_one_order():
    found = bars(memory.draw(ROWS, "title", "GB"))
    assert [bar[:3] for bar in found] == [
        (0, 0, 2), (0, 2, 2), (0, 4, 12), (1, 0, 0.5), (1, 0.5, 0.5), (1, 1, 3),
    ]  # fmt: skip


def test_parts_differ_without_colour_and_are_named_once_below():
    axes = memory.draw(ROWS, "title", "GB")
    hatches = [hatch for *_, hatch in bars(axes)]
    assert hatches[:3] == hatches[3:] and len(set(hatches)) == 3
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["weights", "gradients", "optimizer"]


def test_a_part_that_no_bar_has_is_not_in_the_list_and_the_others_keep_their_look():
    rows = {name: {"weights": 2.0, "bubble": 0.0, "rest": 1.0} for name in ("a", "b")}
    axes = memory.draw(rows, "title", "GB")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["weights", "rest"]
    assert {hatch for *_, width, hatch in bars(axes) if width} == {*memory.HATCHES[::2][:2]}


def test_totals_stand_at_the_ends_and_names_on_parts_with_room():
    texts = [text.get_text().strip() for text in memory.draw(ROWS, "title", "GB").texts]
    assert texts == ["weights", "gradients", "optimizer", "16", "optimizer", "4"]


def test_a_large_total_has_all_its_digits():
    axes = memory.draw({"stage 0": {"weights": 1120.4}}, "title", "GB")
    assert [text.get_text().strip() for text in axes.texts] == ["weights", "1,120"]


def test_a_mark_is_in_the_picture_with_its_name():
    axes = memory.draw(ROWS, "Stage 3 fits", "GB a rank", marks={"a card": 80})
    assert axes.get_xlim()[1] > 80 and "a card" in [text.get_text() for text in axes.texts]
    assert [line.get_xdata()[0] for line in axes.lines] == [80]
    assert axes.get_title(loc="left") == "Stage 3 fits" and axes.get_xlabel() == "GB a rank"
    assert [label.get_text() for label in axes.get_yticklabels()] == list(ROWS)


def test_the_names_of_two_marks_that_lie_close_do_not_touch():
    axes = memory.draw(ROWS, "title", "GB", marks={"may be used": 15, "a card": 16})
    axes.figure.canvas.draw()
    names = [text for text in axes.texts if text.get_text() in ("may be used", "a card")]
    left, right = (text.get_window_extent() for text in names)
    lines = [axes.transData.transform((at, 0))[0] for at in (15, 16)]
    assert left.x1 < lines[0] < lines[1] < right.x0
