import pytest

from course.classroom.drawings.cluster import SENT, cluster


@pytest.mark.parametrize(("machines", "ranks_each"), [(2, 2), (3, 2), (1, 1)])
def test_every_machine_has_its_ranks_and_every_rank_a_core(machines, ranks_each):
    last = machines * ranks_each - 1
    axes = cluster("a title", machines=machines, ranks_each=ranks_each, message=(0, last))
    texts = [text.get_text() for text in axes.texts]
    ranks = [text.split("\n")[0] for text in texts if text.startswith("rank")]
    assert ranks == [f"rank {rank}" for rank in range(last + 1)]
    assert sum(text.startswith("core") for text in texts) == last + 1
    assert sum(text == "network adapter" for text in texts) == machines
    assert "switch" in texts and axes.get_title(loc="left") == "a title"


def test_a_message_goes_by_two_adapters_and_the_switch():
    axes = cluster("a title", message=(1, 2))
    first, second = [line.get_xydata().tolist() for line in axes.lines if line.get_color() == SENT]
    boxes = {text.get_text().split("\n")[0]: text.get_position()[0] for text in axes.texts}
    assert first[0][0] == pytest.approx(boxes["rank 1"])
    assert [x for x, _ in second][1] == pytest.approx(boxes["switch"])
    (arrow,) = [text for text in axes.texts if hasattr(text, "arrow_patch") and text.arrow_patch]
    assert arrow.xy[0] == pytest.approx(boxes["rank 2"])
