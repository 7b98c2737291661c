import pytest
from matplotlib.colors import to_hex

from course.classroom.drawings import card
from course.worlds import processes, run

FOUR = processes(oversubscribe=True)


@pytest.fixture(scope="module")
def held():
    return run(card.all_eight, 4, on=FOUR)


def table(held, name, side):
    """The blocks of all ranks before (0) or after (1), as text; a dot where there is none."""
    rows = (each[name][side] for each in held)
    return ["  ".join(f"{x:02.0f}" if x == x else " ." for x in row) for row in rows]


ROOT_ONLY = [" .   .   .   ."] * 3
ALL = ["00  01  02  03", "10  11  12  13", "20  21  22  23", "30  31  32  33"]
DIAGONAL = ["00   .   .   .", " .  11   .   .", " .   .  22   .", " .   .   .  33"]


@pytest.mark.parametrize(("name", "before", "after"), [
    ("broadcast", [ALL[0], *ROOT_ONLY], [ALL[0]] * 4),
    ("scatter", [ALL[0], *ROOT_ONLY],
     ["00   .   .   .", " .  01   .   .", " .   .  02   .", " .   .   .  03"]),
    ("gather", DIAGONAL, ["00  11  22  33", *ROOT_ONLY]),
    ("all_gather", DIAGONAL, ["00  11  22  33"] * 4),
    ("reduce", ALL, ["60  64  68  72", *ROOT_ONLY]),
    ("reduce_scatter", ALL,
     ["60   .   .   .", " .  64   .   .", " .   .  68   .", " .   .   .  72"]),
    ("all_to_all", ALL, ["00  10  20  30", "01  11  21  31", "02  12  22  32", "03  13  23  33"]),
    ("all_reduce", ALL, ["60  64  68  72"] * 4),
])  # fmt: skip
def test_each_rank_holds_what_the_collective_promises(held, name, before, after):
    assert table(held, name, 0) == before
    assert table(held, name, 1) == after


def test_every_number_stands_in_its_place_with_the_colour_of_its_owner(held):
    drawn = card.draw(held)
    assert list(drawn) == list(card.WHAT)
    for name, axes in drawn.items():
        assert axes.get_title(loc="left") == f"{name}: {card.WHAT[name]}"
        assert [tick.get_text() for tick in axes.get_yticklabels()][3] == "rank 3"
        texts = {text.get_position(): text.get_text() for text in axes.texts}
        for block in axes.patches:
            if not hasattr(block, "get_xy"):
                continue
            (x, y), side = block.get_xy(), int(block.get_x() > 4)
            number = held[y][name][side][round(x - side * (4 + card.APART))]
            assert texts.get((x + 0.5, y + 0.5)) == (f"{number:g}" if number == number else None)
            assert to_hex(block.get_facecolor()) == colour(number, side and "reduce" in name)


def colour(number, summed):
    if number != number:
        return to_hex(card.EMPTY)
    return to_hex(card.SUM if summed else card.COLOURS[int(number // 10)])


def test_two_ranks_make_a_card_too():
    drawn = card.draw(run(card.all_eight, 2))
    texts = [text.get_text() for text in drawn["all_to_all"].texts]
    assert [text for text in texts if text.isdigit()] == [
        "0",
        "1",
        "10",
        "11",
        "0",
        "10",
        "1",
        "11",
    ]
