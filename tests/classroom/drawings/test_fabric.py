import pytest

from course.classroom.drawings import fabric
from course.cluster.fabric import dgx_large, dgx_small, fat_tree
from course.cluster.hardware import EDR, FREE

TREE = fat_tree(2, 2, FREE, EDR)
UP, DOWN = ("leaf 0", "spine 1"), ("spine 1", "leaf 1")
CARRIED = {("gpu 0", "leaf 0"): 3, UP: 3, DOWN: 5}


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_link_has_a_line_for_each_direction_and_only_what_it_carries_is_thick():
    axes = fabric.loads(TREE, CARRIED, "The answer")
    assert len(axes.lines) == 2 * TREE.number_of_edges()
    widths = sorted(line.get_linewidth() for line in axes.lines)[-4:]
    assert widths == [0.8, 1 + 1.3 * 3, 1 + 1.3 * 3, 1 + 1.3 * 5]
    busiest = max(axes.lines, key=lambda line: line.get_linewidth())
    assert [line for line in axes.lines if line.get_color() == busiest.get_color()] == [busiest]
    assert axes.get_title(loc="left") == "The answer"


def test_loads_stand_between_switches_near_where_the_link_begins():
    axes = fabric.loads(TREE, CARRIED, "")
    at = {text.get_text(): text.get_position() for text in axes.texts}
    numbers = [each for each in texts(axes) if each.strip().isdigit()]
    assert sorted(numbers) == ["3", "5"]
    assert at["leaf 0"][1] < at["3"][1] < at["5"][1] < at["spine 1"][1]


def test_directions_lie_side_by_side():
    axes = fabric.loads(TREE, {UP: 1, UP[::-1]: 1}, "")
    up, down = (line.get_xdata() for line in axes.lines if line.get_linewidth() > 2)
    assert up[0] - down[1] == pytest.approx(2 * fabric.APART)


def test_devices_have_the_names_of_their_ranks():
    named = texts(fabric.loads(TREE, {}, "", names={"gpu 0": 0, "gpu 3": 7}))
    assert {"0", "7"} <= set(named) and "gpu 1" not in named


def test_racks_tell_their_power_and_switches_their_ports():
    found = texts(fabric.racks(dgx_small(), "Two racks"))
    assert found.count("19.2 kW") == 2
    assert found.count("24") == 2 and found.count("12") == 1
    assert {"switch 0\n36 of 36 ports", "switch 1\n36 of 36 ports"} <= set(found)


def test_a_pod_stands_below_its_director_and_all_below_the_top():
    axes = fabric.racks(dgx_large(2, 12, 24), "")
    at = {text.get_text().split("\n")[0]: text.get_position() for text in axes.texts}
    assert len([each for each in texts(axes) if each == "19.2 kW"]) == 4
    assert at["director 0"][0] < at["top"][0] < at["director 1"][0]
    assert at["director 0"][1] == at["director 1"][1] < at["top"][1]
    assert "top\n48 of 324 ports" in texts(axes) and texts(axes).count("24") == 6
