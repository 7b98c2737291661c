"""A results file: what is in it, and what is refused."""

import json
import resource

import pytest

from course.cluster.scaling.results import Point, Results, load, provenance

POINTS = [
    Point("pipeline", "strong", 1, "measured", 2.0, 0),
    Point("pipeline", "strong", 4, "measured", 0.8, 10),
    Point("pipeline", "weak", 1, "measured", 2.0, 0),
    Point("pipeline", "weak", 4, "measured", 2.5, 40),
    Point("pipeline", "strong", 1, "simulated", 1.0, 0),
]


def test_speed_up_and_efficiency():
    results = Results(POINTS, {})
    assert results.speedups("pipeline", "strong") == {1: 1, 4: 2.5}
    assert results.efficiencies("pipeline", "strong") == {1: 1, 4: 0.625}
    assert results.speedups("pipeline", "weak") == {1: 1, 4: 3.2}
    assert results.speedups("pipeline", "strong", "simulated") == {1: 1}


def test_utilisation_is_what_was_done_of_what_could_have_been():
    counted = [point._replace(flops=10**12) for point in POINTS]
    assert Results(counted, {}).utilisation("pipeline", "strong", 1e12) == {1: 0.5, 4: 0.3125}
    assert Results(POINTS, {}).utilisation("pipeline", "strong", 1e12) == {}


def test_a_file_from_before_operations_were_counted_is_loaded(tmp_path):
    path = tmp_path / "old.json"
    Results(POINTS, {}).save(path)
    said = json.loads(path.read_text())
    for point in said["points"]:
        del point["flops"]
    path.write_text(json.dumps(said))
    assert load(path).points == POINTS


def test_a_curve_without_a_beginning_is_refused():
    with pytest.raises(ValueError, match="no simulated point of one rank for pipeline, weak"):
        Results(POINTS, {}).speedups("pipeline", "weak", "simulated")


def test_what_is_saved_is_loaded(tmp_path):
    results = Results(POINTS, provenance("processes()", False, 5))
    results.save(tmp_path / "here.json")
    assert load(tmp_path / "here.json") == results
    assert {"date", "command", "cores", "torch", "python", "world"} <= results.provenance.keys()


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("mine")
    with pytest.raises(ValueError, match="mine.json exists, and results are not overwritten"):
        Results(POINTS, {}).save(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3", '"version"'])
def test_what_is_no_results_file_is_refused(tmp_path, text):
    path = tmp_path / "what.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="what.json is no results file"):
        load(path)


@pytest.mark.parametrize("spoil", [
    lambda said: said.pop("points"),
    lambda said: said.update(points=[{"program": "pipeline"}]),
    lambda said: said.update(points=7),
])  # fmt: skip
def test_a_results_file_that_was_cut_is_refused(tmp_path, spoil):
    path = tmp_path / "cut.json"
    Results(POINTS, {}).save(path)
    said = json.loads(path.read_text())
    spoil(said)
    path.write_text(json.dumps(said))
    with pytest.raises(ValueError, match="cut.json is no results file"):
        load(path)


def test_another_version_is_refused(tmp_path):
    path = tmp_path / "old.json"
    Results(POINTS, {}).save(path)
    path.write_text(path.read_text().replace('"version": 1', '"version": 7'))
    with pytest.raises(ValueError, match="of version 7, this program reads 1"):
        load(path)


@pytest.mark.parametrize("spoiled", [
    {"seconds": float("nan")}, {"seconds": "2"}, {"seconds": 0}, {"seconds": -1.0}, {"ranks": 0},
    {"ranks": "1"}, {"ranks": 1.5}, {"sent_bytes": None}, {"scaling": 3}, {"flops": -1},
    {"flops": 0.5},
])  # fmt: skip
def test_a_point_that_cannot_be_is_neither_loaded_nor_saved(tmp_path, spoiled):
    path, (name, value) = tmp_path / "here.json", *spoiled.items()
    Results(POINTS, {}).save(path)
    said = json.loads(path.read_text())
    said["points"][2] |= spoiled
    path.write_text(json.dumps(said))
    with pytest.raises(
        ValueError, match=f"here.json has a point that cannot be: .*{name}={value!r}"
    ):
        load(path)
    with pytest.raises(
        ValueError, match=f"there.json has a point that cannot be: .*{name}={value!r}"
    ):
        Results([POINTS[0]._replace(**spoiled)], {}).save(tmp_path / "there.json")
    assert not (tmp_path / "there.json").exists()


def test_what_cannot_be_written_leaves_no_file_in_the_way(tmp_path):
    with pytest.raises(TypeError):
        Results(POINTS, {"world": object()}).save(tmp_path / "here.json")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # as a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            Results(POINTS, {}).save(tmp_path / "here.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    Results(POINTS, {}).save(tmp_path / "here.json")
