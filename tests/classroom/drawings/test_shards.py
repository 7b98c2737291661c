from matplotlib.colors import to_rgba

from course.classroom.drawings import shards


def test_a_rank_keeps_whole_vectors_and_its_own_part_of_sharded_ones():
    axes = shards.draw({"weights": False, "moments": True}, 3, "title")
    filled = [(round(b.get_y() + b.get_height() / 2), b.get_x() > 1)
              for b in axes.patches if b.get_facecolor() == to_rgba(shards.KEPT)]  # fmt: skip
    assert [filled.count((rank, False)) for rank in range(3)] == [3, 3, 3]
    assert [filled.count((rank, True)) for rank in range(3)] == [1, 1, 1]
    numbers = [text for text in axes.texts if text.get_text().isdigit()]
    assert [(text.get_text(), text.get_position()[1]) for text in numbers] == [
        ("0", 0), ("1", 1), ("2", 2),
    ]  # fmt: skip
    lefts = [text.get_position()[0] for text in numbers]
    assert lefts == sorted(lefts)


def test_names_stand_above_and_ranks_at_the_side():
    axes = shards.draw({"weights": False, "moments": True}, 2, "title")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert {"weights", "moments"} <= {text.get_text() for text in axes.texts}
