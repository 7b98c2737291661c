"""A table that cannot run is refused in a sentence that says why."""

import random

import pytest

from course.parallel.pipeline import INPUT, Schedule
from tests.parallel.pipeline.nets import chance_schedule


@pytest.mark.parametrize("text, sentence", [
    ("", "a micro-batch and a stage at least"),
    ("0F0 0F0 0B0", "each step is done once: 0F0 is twice on rank 0"),
    ("0F0 0B0\n1F0 0F0 1B0", "each step is done once: 0F0 is twice on ranks 0, 1"),
    ("0F0 0B0 1F0\n1B0", "a stage is on one rank: 1 is on ranks 0, 1"),
    ("0F0 0F1 0B0", "0B1 is missing on rank 0"),
    ("0F0 0B0\n2F0 2B0", "1F0 is missing on no rank"),
    ("0B0", "0F0 is missing on rank 0"),
    ("0F0 0I0", "0W0 is missing on rank 0"),
    ("0F0 0B0 0W0", "B is a whole backward, I and W are its halves: stage 0 on rank 0 does"),
    ("0B0 0F0", "rank 0: 0B0 needs 0F0, which stands behind it"),
    ("0F0 0W0 0I0", "rank 0: 0W0 needs 0I0, which stands behind it"),
    ("1F0 0F0 1B0 0B0", "rank 0: 1F0 needs 0F0, which stands behind it"),
    ("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1",
     "this schedule is a deadlock: rank 0 waits in 0B0 for 1B0; rank 1 waits in 1F1 for 0F1"),
])  # fmt: skip
def test_a_wrong_table_is_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        Schedule.of(text)


@pytest.mark.parametrize("takes, sentence", [
    ({1: (1,)}, r"from those before it, or INPUT, each once: stage 1 cannot take from \(1,\)"),
    ({1: (-2,)}, "cannot take from"),
    ({1: (0, 0)}, r"each once: stage 1 cannot take from \(0, 0\)"),
    ({3: (0,)}, "stages 0 to 1 take something, not stage 3"),
    ({1: ()}, "stages 0 to 1 take something, not stage 1"),
    ({1: (INPUT,)}, "nobody takes what stage 0 gives"),
])  # fmt: skip
def test_wrong_connections_are_refused(takes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Schedule.of("0F0 0B0\n1F0 1B0", takes)


@pytest.mark.parametrize("step", [(0, "X", 0), (-1, "F", 0), (0, "F", -1), (0, "F", 1.0), (0, "F")])
def test_what_is_no_step_is_refused_in_a_table(step):
    with pytest.raises(ValueError, match="a step is a stage, one of F, B, I, W and a micro-batch"):
        Schedule([[(0, "F", 0), step, (0, "B", 0)]])


def test_any_change_of_a_table_is_found_or_harmless():
    """A step left out or doubled is always refused; two that change places are, or can run."""
    draw = random.Random(0)
    for _ in range(60):
        schedule = chance_schedule(draw)
        rows = [list(row) for row in schedule.rows]
        row = draw.choice([row for row in rows if row])
        at = draw.randrange(len(row))
        for wrong in (row[:at] + row[at + 1 :], [*row, row[at]]):
            with pytest.raises(ValueError, match=r"missing|done once|nobody|at least|takes|take"):
                Schedule([wrong if other is row else other for other in rows], schedule.takes)
        row[at], row[at - 1] = row[at - 1], row[at]
        try:
            assert len(Schedule(rows, schedule.takes).order) == sum(map(len, rows))
        except ValueError as error:
            assert "needs" in str(error) or "deadlock" in str(error)
