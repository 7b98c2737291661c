from matplotlib.colors import to_hex

from course.classroom.drawings import rank_grid

SIZES = {"data": 2, "pipeline": 2, "tensor": 3}
GROUPS = {
    "data": [(rank, rank + 6) for rank in range(6)],
    "tensor": [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)],
}


def words(axes):
    """{rank: (place from the left, place from above, letter of its group)}."""
    told = {}
    for text in axes.texts:
        name, letter = text.get_text().split("\n")
        told[int(name.removeprefix("rank "))] = (*text.get_position(), letter)
    return told


def test_every_rank_stands_where_its_coordinates_are():
    for axes in rank_grid.draw(SIZES, GROUPS, "Ranks"):
        told = words(axes)
        assert sorted(told) == list(range(12))
        assert [told[rank][:2] for rank in (0, 2, 3, 6, 11)] == [
            (0, 0), (2, 0), (0, 1), (0, 2), (2, 3),
        ]  # fmt: skip
        rows = [tick.get_text() for tick in axes.get_yticklabels()]
        assert rows == ["data 0, pipeline 0", "data 0, pipeline 1", "data 1, pipeline 0",
                        "data 1, pipeline 1"]  # fmt: skip
        assert axes.get_xlabel() == "tensor" and axes.get_ylim()[0] > axes.get_ylim()[1]


def test_the_ranks_of_a_group_have_one_letter_and_one_colour():
    for axes, members in zip(rank_grid.draw(SIZES, GROUPS, "Ranks"), GROUPS.values(), strict=True):
        told = words(axes)
        letters = [{told[rank][2] for rank in group} for group in members]
        assert letters == [{"ABCDEF"[number]} for number in range(len(members))]
        order = [rank for group in members for rank in group]
        colour = dict(zip(order, (to_hex(each.get_facecolor()) for each in axes.patches)))
        assert [len({colour[rank] for rank in group}) for group in members] == [1] * len(members)
        assert len(set(colour.values())) == len(members)


def test_the_titles_count_groups():
    data, tensor = rank_grid.draw(SIZES, GROUPS, "Who is with whom")
    assert data.get_title(loc="left") == "data: 6 groups of 2"
    assert tensor.get_title(loc="left") == "tensor: 4 groups of 3"
    assert data.figure.get_suptitle() == "Who is with whom"
