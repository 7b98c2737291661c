"""Bars of several groups of candidates: the same order in all panels, the baseline dashed."""

from matplotlib.colors import to_rgb

from course.classroom.drawings import candidates

EASY = {"net": (88, 87, 89), "pixel": (71, 71, 71), "filter": (83, 82, 85)}
FAIR = {"net": (86, 80, 90), "pixel": (60, 55, 65), "filter": (74, 70, 76)}


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_panels_of_the_same_names_are_in_the_order_of_the_last():
    left, right = candidates.draw([{**EASY, "pixel": (99, 99, 99)}, FAIR], ("a", "b"), (65, 62))
    assert rows(left) == rows(right) == ["pixel", "filter", "net"]
    assert [bar.get_width() for bar in right.patches] == [60, 74, 86]


def test_a_panel_of_other_names_has_the_order_of_its_own_means():
    other = {"b": (70, 60, 80), "a": (60, 60, 60)}
    left, right = candidates.draw([other, FAIR], ("a", "b"), (65, 62))
    assert rows(left) == ["a", "b"] and rows(right) == ["pixel", "filter", "net"]


def test_each_panel_shows_its_title_the_range_the_baseline_and_all_of_the_axis():
    panels = candidates.draw([EASY, FAIR], ("the papers", "held out"), (64.8, 62.2))
    assert [axes.get_title(loc="left") for axes in panels] == ["the papers", "held out"]
    for axes, scores, baseline in zip(panels, (EASY, FAIR), (64.8, 62.2), strict=True):
        *ranges, line = axes.lines
        assert sorted(tuple(each.get_xdata()) for each in ranges) == sorted(
            tuple(each[1:]) for each in scores.values()
        )
        assert list(line.get_xdata()) == [baseline, baseline] and line.get_linestyle() == "--"
        assert axes.get_xlim() == (0, 100) and "dashed: always «no»" in axes.get_xlabel()


def test_numbers_stand_on_a_ground_that_hides_the_dashes():
    [axes] = candidates.draw([FAIR], ("a",), (62,))
    assert axes.texts and all(to_rgb(each.get_bbox_patch().get_facecolor()) == (1, 1, 1)
                              for each in axes.texts)  # fmt: skip


def test_every_mean_has_one_decimal():
    [axes] = candidates.draw([FAIR], ("a",), (62,))
    assert [each.get_text().strip() for each in axes.texts] == ["60.0", "74.0", "86.0"]
