"""The bars of a schedule: where its times are, with what they are, told apart without colour."""

import matplotlib as mpl
import pytest

from course.classroom.drawings import schedule
from course.parallel.pipeline import (
    gpipe,
    interleaved,
    one_forward_one_backward,
    simulate,
    zero_bubble,
)
from course.parallel.pipeline.timing import Span, Timing


def bars(axes):
    """(rank, start, end) of all steps, without the grey of idle time."""
    idle = mpl.colors.to_rgba(schedule.IDLE)
    return [(round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_x() + bar.get_width())
            for bar in axes.patches if bar.get_facecolor() != idle]  # fmt: skip


def texts(axes, rank):
    return [text.get_text() for text in axes.texts if text.get_position()[1] == rank]


def test_bars_are_where_the_times_are_in_units_from_the_first_start():
    timing = simulate(one_forward_one_backward(3, 4), 0.5, 1.0, 0.25)
    later = Timing([[Span(step, start + 7, end + 7) for step, start, end in row]
                    for row in timing.rows])  # fmt: skip
    axes = schedule.draw(later, "1F1B", unit_s=0.5)
    wanted = [(rank, start / 0.5, end / 0.5) for rank, row in enumerate(timing.rows)
              for _, start, end in row]  # fmt: skip
    assert bars(axes) == [pytest.approx(bar) for bar in wanted]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1] and axes.get_title(loc="left") == "1F1B"


def test_bars_say_their_kind_and_micro_batch():
    axes = schedule.draw(simulate(one_forward_one_backward(2, 2)), "1F1B")
    assert texts(axes, 0) == ["F0", "F1", "B0", "B1"]
    assert texts(axes, 1) == ["F0", "B0", "F1", "B1"]


def test_they_say_their_stage_where_a_rank_has_several():
    axes = schedule.draw(simulate(interleaved(2, 2, 2)), "interleaved")
    assert texts(axes, 1)[:2] == ["1F0", "1F1"] and "3B1" in texts(axes, 1)
    shades = [bar.get_alpha() for bar in axes.patches if bar.get_y() > 0 and bar.get_alpha()]
    stages = [span.step.stage for span in simulate(interleaved(2, 2, 2)).rows[1]]
    assert shades == [{1: 1.0, 3: 0.6}[stage] for stage in stages]


def test_narrow_bars_have_the_number_alone_or_nothing():
    narrow, narrower = (schedule.draw(simulate(gpipe(2, m)), "GPipe") for m in (16, 60))
    assert texts(narrow, 0)[:3] == ["0", "1", "2"] and texts(narrow, 0)[-1] == "B15"
    assert len(texts(narrower, 0)) < 120 == sum(rank == 0 for rank, *_ in bars(narrower))


def test_bars_of_one_kind_are_written_alike_though_one_of_them_is_longer():
    timing = simulate(gpipe(2, 8))
    slow, *rows = (list(row) for row in timing.rows)
    slow[0] = Span(slow[0].step, slow[0].start - 20, slow[0].end)
    axes = schedule.draw(Timing([slow, *rows]), "a slow start")
    assert texts(axes, 0) == [*map(str, range(8)), *(f"B{number}" for number in range(8))]


def test_numbers_of_two_digits_are_written_where_they_fit():
    axes = schedule.draw(simulate(gpipe(4, 12)), "GPipe")
    assert texts(axes, 0)[:12] == [*map(str, range(12))]


def test_kinds_differ_without_colour_and_are_named():
    axes = schedule.draw(simulate(zero_bubble(2, 3)), "H1")
    keys = axes.get_legend()
    names = [text.get_text() for text in keys.texts]
    assert [name.split(":")[0] for name in names] == ["F", "I", "W", "idle"]
    hatches = {patch.get_hatch() for patch in axes.patches if patch.get_width() < 2}
    assert len(hatches) == 3
    assert len({hatch for _, _, hatch in schedule.KINDS.values()}) == 4


@pytest.mark.parametrize(("table", "pale"), [(interleaved(2, 2, 2), 1), (gpipe(2, 2), 0)])
def test_a_key_says_what_pale_bars_are_where_a_rank_has_several_stages(table, pale):
    keys = schedule.draw(simulate(table), "a table").get_legend()
    named = {text.get_text(): patch for text, patch in zip(keys.texts, keys.get_patches())}
    later = [patch.get_alpha() for name, patch in named.items() if name.startswith("pale")]
    assert later == pale * [0.6]


def test_idle_time_is_grey_behind_every_lane():
    axes = schedule.draw(simulate(gpipe(3, 1)), "naive")
    idle = [bar for bar in axes.patches if bar.get_facecolor() == mpl.colors.to_rgba("0.9")]
    assert [bar.get_width() for bar in idle] == [9.0] * 3
    assert all(bar.get_zorder() < 1 for bar in idle)


def test_a_refusal_is_a_picture_of_its_sentence():
    axes = schedule.refusal("9 micro-batches cannot be cut")
    assert axes.get_title(loc="left") == "9 micro-batches cannot be cut" and not axes.axison
