"""The machinery that measures; what it measures is never asserted."""

import os
import select
import signal
import sys
import types

import pytest
import torch
from PIL import Image

from benchmarks import __main__ as program
from benchmarks import all_reduce, checking, compiling, ethernet, launching, slurm, storage
from benchmarks.report import NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, Stolen, in_turns, race
from course.collectives import all_reduce as reduce_all
from course.comm import CommMismatch
from course.worlds import hosts, run
from tests import slurm_box

WHY_NOT = hosts.available()


def test_every_turn_another_one_begins_and_the_first_is_not_counted():
    order = []
    contestants = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    returned = in_turns(contestants, 3)
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"
    assert returned == {"a": [4, 9, 11], "b": [5, 7, 12], "c": [6, 8, 10]}


def test_a_ratio_is_taken_within_each_turn():
    assert Ratio.of([1.0, 10.0, 6.0], [1.0, 5.0, 2.0]) == (2.0, 1.0, 3.0)


def test_stolen_time_is_a_part_of_all_time(tmp_path):
    told = tmp_path / "stat"
    told.write_text("cpu  100 0 50 800 0 0 0 40 0 0\ncpu0 ...\n")
    with Stolen(told) as stolen:
        told.write_text("cpu  120 0 50 850 0 0 0 70 5 0\ncpu0 ...\n")
    assert str(stolen) == "30.0%"
    with Stolen(tmp_path / "nowhere") as unknown:
        pass
    assert str(unknown) == "not told"


@pytest.mark.parametrize(
    ("aim", "ratio", "met"),
    [
        (Aim("≥", 1.0), 0.95, "yes"),
        (Aim("≥", 1.0), 0.94, "no"),
        (Aim("≥", 10), 10.0, "yes"),
        (Aim("≥", 10), 9.9, "no"),
        (Aim("≤", 1.1), 1.1, "yes"),
        (Aim("≤", 1.1), 1.11, "no"),
        (NO_AIM, 0.1, ""),
    ],
)
def test_equal_is_good_enough_only_where_equal_is_the_aim(aim, ratio, met):
    assert aim.met(ratio) == met


def test_a_table_is_markdown():
    rows = [{"MB": 16} | judged(Ratio(1.024, 0.9, 1.3), Aim("≥", 1.0)),
            {"MB": 128} | judged(Ratio(2.0, 1.0, 3.0))]  # fmt: skip
    assert (
        Table("Speed", rows, "By ratio.").markdown()
        == """\
## Speed

| MB  | ratio | lowest to highest | aim   | met |
| --- | ----- | ----------------- | ----- | --- |
| 16  | 1.02  | 0.90 to 1.30      | ≥ 1.0 | yes |
| 128 | 2.00  | 1.00 to 3.00      | none  |     |

By ratio."""
    )


def note_turns(comm, noted):
    return {name: lambda name=name: noted.append(name) for name in ("one", "two")}


def test_a_race_times_every_contestant_in_every_turn_on_all_ranks():
    times = race(note_turns, 2, 5, [])
    assert list(times) == ["one", "two"]
    assert all(len(seconds) == 5 and min(seconds) > 0 for seconds in times.values())


@pytest.mark.parametrize(("benchmark", "limit"), [(all_reduce, "≥"), (checking, "≤")])
def test_the_benchmarks_of_collectives_run(benchmark, limit):
    table = benchmark.measure(1, sizes_mb=(0.001, 16), ranks=(2,))
    small, large = table.rows[0], table.rows[-1]
    assert (small["ranks"], small["MB"], small["aim"]) == (2, 0.001, "none")
    assert large["aim"].startswith(limit) and float(large["ratio"]) > 0
    assert all(value != "" for name, value in large.items() if name != "met")


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_nothing_is_faster_than_the_cables_allow():
    table = ethernet.measure(1, sizes_mb=(4,), ranks=(2,))
    *ours, auto = table.rows
    assert all(0 < float(row["ratio"]) < 1.02 for row in ours)  # a burst of 40 KB is 1 % of 4 MB
    assert auto["algorithm"].startswith("auto (best: ") and auto["aim"] == "≥ 0.9"


@pytest.mark.skipif(slurm_box.missing() is not None, reason=slurm_box.missing() or "")
def test_ranks_on_nodes_of_slurm_are_raced():
    reduced, began = slurm.measure(1).rows
    assert (reduced["what"], reduced["aim"]) == ("all-reduce", "≥ 0.9")
    assert float(reduced["seconds"]) >= 0.19  # the cables allow no less
    assert (began["what"], began["aim"], began["ratio"]) == ("run", "≤ 1.0", began["seconds"])


def disagree_in_both(comm):
    """Whether a differing op is noticed: in the group made for it, and in the run itself."""
    calls = checking.contestants(comm, 4)
    group = calls["checked"].__closure__[0].cell_contents
    op = "max" if comm.rank else "sum"
    with pytest.raises(CommMismatch):
        reduce_all(group, torch.ones(1), op)
    reduce_all(comm, torch.ones(1), op)
    return [call() for call in calls.values()]


def test_one_of_the_two_ways_is_checked_and_the_other_is_not():
    assert run(disagree_in_both, 2, checked=False) == [[None, None]] * 2


def test_a_program_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"(?s)python -c .* ended with 1:.*no such thing"):
        launching.finished(["-c", "raise ValueError('no such thing')"])


INTERRUPTING = """
import os, signal, subprocess, sys
alive = os.open(sys.argv[1], os.O_WRONLY)
pause = [sys.executable, "-c", "import signal; signal.pause()"]
subprocess.Popen(pause, pass_fds=[alive])
os.kill(os.getppid(), signal.SIGINT)
signal.pause()
"""


@pytest.fixture
def interruptible():
    """Where tests run in the background, the shell may have interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_program_ends_with_what_it_started_when_interrupted(tmp_path, interruptible):
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(KeyboardInterrupt):
        launching.finished(["-c", INTERRUPTING, str(tmp_path / "alive")])
    closed, _, _ = select.select([reader], [], [], 20)
    assert closed, "what the program started holds its end of the pipe open"
    assert os.read(reader, 1) == b""
    os.close(reader)


def quick(turns):
    return Table("Quick", [{"turns": turns}])


def test_the_tables_are_printed_and_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(program, "BENCHMARKS", {"quick": types.SimpleNamespace(measure=quick)})
    program.main(["quick", "--turns", "3", "--markdown", str(tmp_path / "table.md")])
    said = capsys.readouterr()
    assert said.out == (tmp_path / "table.md").read_text()
    assert "## Quick\n\n| turns |\n| ----- |\n| 3     |\n" in said.out
    assert f"Python {sys.version.split()[0]}, torch {torch.__version__.split('+')[0]}" in said.out
    assert said.err == "measuring quick ...\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["all-reduce"], "no benchmark 'all-reduce' among launching, all_reduce, checking"),
        (["--turns", "0"], "each takes its turn at least once, not 0 times"),
        (["--markdown", "nowhere/table.md"], "no folder nowhere to write table.md in"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(arguments, sentence, capsys):
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert sentence in capsys.readouterr().err


def test_compiling_is_a_row_of_medians(monkeypatch):
    turns = iter([(0.011, 20.0, 0.004), (0.012, 21.0, 0.006), (0.010, 19.0, 0.005)])
    monkeypatch.setattr(compiling, "timed_calls", lambda fn, x: next(turns))
    table = compiling.measure(3)
    assert table.rows[0]["ms"] == "11.0 / 5.0" and table.rows[0]["ratio"] == "2.00"
    assert table.rows[0]["first call (s)"] == "20.0"


def test_without_a_compiler_the_others_are_still_measured(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "has no compiler" in compiling.measure(1).rows[0]["not measured"]


def test_photographs_are_raced(tmp_path):
    for number in range(3):
        Image.new("L", (330, 340), 40 * number).save(tmp_path / f"{number}.jpg")
    table = storage.measure(1, workers=(1,), photographs=tmp_path)
    assert [row["what"] for row in table.rows] == [
        "DataLoader, shards", "Loader, files", "Loader, shards",
        "bytes of files, warm", "bytes of files, cold",
        "bytes of shards, warm", "bytes of shards, cold",
    ]  # fmt: skip
    assert [row["met"] in ("yes", "no") for row in table.rows] == [n == 2 for n in range(7)]
