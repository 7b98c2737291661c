import pytest

from course.classroom.drawings import shown_rows
from course.parallel.hybrid.weird_trick import rounds

ROWS = [4, 3]
PLANS = {scheme: rounds(scheme, ROWS) for scheme in "abc"}


def told(axes):
    """{(rank, row): number of the round}."""
    return {(text.get_position()[1], int(text.get_position()[0])): int(text.get_text())
            for text in axes.texts}  # fmt: skip


def test_every_row_has_the_number_of_its_round():
    a, b, c = shown_rows.draw(PLANS, "Rows")
    every = [(rank, row) for rank, rows in enumerate(ROWS) for row in range(rows)]
    assert told(a) == dict.fromkeys(every, 1)
    assert told(b) == {(rank, row): rank + 1 for rank, row in every}
    assert told(c) == {(rank, row): 1 + (row > 1) for rank, row in every}


def test_bars_lie_on_their_rows_and_a_round_has_a_colour():
    _, b, _ = shown_rows.draw(PLANS, "Rows")
    bars = [(bar.get_x(), bar.get_y() + bar.get_height() / 2) for bar in b.patches]
    assert bars == [pytest.approx((row, rank)) for rank, rows in enumerate(ROWS)
                    for row in range(rows)]  # fmt: skip
    colours = [bar.get_facecolor() for bar in b.patches]
    assert len(set(colours[:4])) == len(set(colours[4:])) == 1 and colours[0] != colours[4]


def test_the_titles_count_rounds():
    drawn = shown_rows.draw(PLANS, "When is which image shown?")
    titles = [axes.get_title(loc="left") for axes in drawn]
    assert titles == ["(a): 1 round", "(b): 2 rounds", "(c): 2 rounds"]
    assert drawn[0].figure.get_suptitle() == "When is which image shown?"
    assert [tick.get_text() for tick in drawn[0].get_yticklabels()] == ["rank 0", "rank 1"]
