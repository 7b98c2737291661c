"""Recorded twins: whole, near what cables allow, shown with the word where a world is missing."""

import datetime
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from course.classroom import provenance, recorded
from course.classroom.drawings import interior
from course.classroom.overlap_runs import on_the_cable
from course.classroom.record import QUIET, code_cells, measured_in, run_cells
from course.classroom.recorded import RECORDS, Record, measured_or_recorded, twin
from course.cluster.scaling.results import Point, Results
from course.collectives import cost
from course.comm.errors import CommError
from course.worlds import hosts, mpi
from course.worlds.netns import world

BOOK = Path(__file__).parents[2] / "notebooks"
SELECTIVITY = Path(__file__).parents[2] / "benchmarks/results/selectivity.md"
NO_HOSTS, NO_MPI = "this machine allows no user namespaces", "there is no MPI here"
NOTEBOOKS = {name: path for path in sorted(BOOK.glob("[0-9]*.ipynb"))
             for name in measured_in(code_cells(path))}  # fmt: skip
BEFORE = {"faces", "all_reduce"}  # recorded before there was `make record`
ALSO = {  # words of the cells that show more of what was measured
    "ping_pong": ["reached = {name:"],
    "layer_steps": ["# Draws the prediction beside"],
    "all_reduce": ["# Fits α", "busbw of 16 MB"],
    "scaling": ["law = amdahl(recorded)"],
}


@pytest.fixture
def no_worlds(monkeypatch, tmp_path):
    """A machine without hosts in a box, without MPI and without a compiler."""

    def refused(*args):
        raise CommError(NO_HOSTS)

    def missing(*args, **options):
        raise ValueError(NO_MPI)

    monkeypatch.setattr(world.VirtualCluster, "__init__", refused)
    monkeypatch.setattr(mpi, "run", missing)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    mpl.use("agg")
    yield
    plt.close("all")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_where_a_world_is_missing_its_notebook_shows_what_was_recorded(name, no_worlds, capsys):
    cells = code_cells(NOTEBOOKS[name])
    also = [n for words in ALSO.get(name, ()) for n, cell in enumerate(cells) if words in cell]
    assert len(also) == len(ALSO.get(name, ()))
    run_cells(NOTEBOOKS[name], [measured_in(cells)[name], *also])
    said = capsys.readouterr().out
    assert any(why in said for why in (NO_HOSTS, NO_MPI, "no compiler for it"))
    assert str(twin(name)) in said and f"measured here: {provenance.machine()}" not in said


def test_every_file_is_used_and_every_name_has_its_file():
    cells = (cell for path in BOOK.glob("[0-9]*.ipynb") for cell in code_cells(path))
    shown = {name for cell in cells for name in re.findall(r'\btwin\("(\w+)"\)', cell)}
    assert {path.name for path in RECORDS.iterdir()} == {
        f"{name}.json" for name in {*NOTEBOOKS, *shown}
    }


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_record_says_what_it_is_where_when_and_by_which_command_it_was_made(path):
    record = twin(path.stem)
    assert re.fullmatch(r"\d+ cores? \(.+\)", record.machine)
    assert re.search(r"Python \d.*torch \d", record.versions)
    assert datetime.date.fromisoformat(record.date) >= datetime.date(2026, 11, 21)
    assert record.value and len(record.what) > 20 and record.command
    if path.stem not in BEFORE:
        assert (
            record.load >= 0 and record.command == f"python -m course.classroom.record {path.stem}"
        )


@pytest.fixture
def a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RECORDS", tmp_path)
    monkeypatch.setattr(provenance, "processor", lambda: "Abacus 9")
    made = Record("", "9 cores (Abacus 8)", "", "2026-11-23", 0.25, "", {"1": [2.5]})
    made.save(tmp_path / "sums.json")
    return made


def test_a_record_comes_back_as_it_was(a_record):
    assert twin("sums") == a_record
    with pytest.raises(ValueError, match="nothing is recorded as 'sum', only sums"):
        twin("sum")


def test_another_machine_is_told(a_record, monkeypatch):
    said = "recorded: 9 cores (Abacus 8), 2026-11-23, load before it began 0.2"
    assert str(a_record) == f"{said}. It was another machine than this one."
    monkeypatch.setattr(provenance, "machine", lambda: "9 cores (Abacus 8)")
    assert str(a_record) == said
    assert str(a_record._replace(load=None)) == "recorded: 9 cores (Abacus 8), 2026-11-23"


def test_what_can_be_measured_is_measured(a_record, capsys):
    found = measured_or_recorded("sums", None, lambda: {1: (4,)})
    assert found == ({"1": [4]}, "measured here")
    assert capsys.readouterr().out == (
        f"measured here: {provenance.machine()}, {datetime.date.today()}\n"
    )


def test_what_cannot_be_measured_is_shown_with_its_machine(a_record, capsys):
    assert measured_or_recorded("sums", NO_HOSTS, None) == ({"1": [2.5]}, "recorded")
    assert capsys.readouterr().out == f"{NO_HOSTS}\n{a_record}\n"


def on_a_quiet_machine(name):
    """What was recorded, if nobody else was at work then."""
    record = twin(name)
    if (record.load or 0) > QUIET:
        pytest.skip(f"a load of {record.load}: `make record ARGS={name}` on a quiet machine")
    return record.value


def test_recorded_messages_are_near_what_a_gigabit_cable_allows():
    times, (one, both) = on_a_quiet_machine("ping_pong"), on_a_quiet_machine("crossing")
    assert 4 ** len(times) / times[-1] == pytest.approx(125e6, rel=0.06)
    assert one == pytest.approx(100e6 / 125e6, rel=0.1)
    assert 1 < both / one < 1.2


def test_recorded_all_reduces_of_long_vectors_are_near_what_gigabit_cables_allow():
    beta = 1 / hosts(4, rate="1gbit").bytes_per_s
    for name, times in on_a_quiet_machine("all_reduce").items():
        for size, took in zip((2**18, 2**21), times[2:4], strict=True):
            predicted = cost.all_reduces(4, size // 4, 4)[name]
            assert 0.6 < took / predicted.seconds(100e-6, beta) < 1.6, (name, size)
        alone = cost.all_reduces(4, 2**22, 4)[name].path_bytes * beta
        assert times[-1] == pytest.approx(alone, rel=0.1), f"{name}: record it on a quiet machine"


def test_recorded_layers_take_longer_if_wider_and_then_longer_than_their_network():
    arithmetic, network = zip(*on_a_quiet_machine("layer_steps"), strict=True)
    assert list(arithmetic) == sorted(arithmetic)
    assert arithmetic[0] < network[0] and arithmetic[-1] > network[-1]


def test_recorded_orders_differ_by_a_factor_of_two():
    times = on_a_quiet_machine("rank_orders")
    assert times["round robin"] / times["contiguous"] == pytest.approx(2, rel=0.15)


def test_recorded_buckets_hide_a_part_of_the_cable():
    steps = on_a_quiet_machine("bucket_steps").values()
    assert "ms less: " in on_the_cable(*(1e3 * moments[-1] for moments, _ in steps), 0, 0)


def test_recorded_layers_wait_less_for_their_halo_if_the_interior_comes_first():
    rows = {name: interior.pieces(each) for name, each in on_a_quiet_machine("interior").items()}
    assert "ms are left" in interior.said_of(rows)


def test_recorded_weak_scaling_is_the_more_efficient():
    found = Results([Point(*each) for each in on_a_quiet_machine("scaling")], {})
    weak, strong = (found.efficiencies("data_parallel", kind)[8] for kind in ("weak", "strong"))
    assert 1.1 > weak > 0.7 > strong > 0.3


def test_scores_of_neurons_stand_in_the_table_of_the_benchmark():
    rows = re.findall(r"([\d.]+) +\| ([\d.]+) to ([\d.]+) +\|", SELECTIVITY.read_text())
    table = [list(map(float, row)) for row in rows]
    assert all(score in table for score in twin("faces").value.values())
