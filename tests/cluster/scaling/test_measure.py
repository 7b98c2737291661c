"""Steps of real programs, measured and simulated."""

import re

import pytest
import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR
from course.cluster.scaling import __main__ as program
from course.cluster.scaling import load, measure, simulate
from course.cluster.scaling.measure import _threads, _timed
from course.cluster.scaling.programs import PROGRAMS
from course.cluster.scaling.work import DEVICE
from course.worlds import processes, run

CLUSTER = lambda p: one_switch(p, DEVICE, FDR)  # noqa: E731


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sends_as_much_where_it_is_imagined(name):
    quiet = {"told": lambda sentence: None}
    imagined_points = simulate(CLUSTER, [1, 2], [name], **quiet)
    results = measure(lambda p: processes(), [1, 2], [name], turns=1, resting=True, **quiet)
    assert [(p.scaling, p.ranks) for p in results.points] == [
        ("strong", 1), ("strong", 2), ("weak", 1), ("weak", 2)]  # fmt: skip
    for real, imagined in zip(results.points, imagined_points):
        assert real[:3] == imagined[:3]
        assert real.sent_bytes == imagined.sent_bytes
        assert real.seconds > 0.9 * imagined.seconds  # it rests no less than simulated
    first, second, alone, both = (point.flops for point in results.points)
    assert first == alone <= second <= 1.2 * first and both == pytest.approx(2 * first, rel=0.2)
    for each in (results.points, imagined_points):
        assert each[1].sent_bytes > 0 == each[0].sent_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_rest_as_often_as_they_are_told(name):
    quiet = {"told": lambda sentence: None}
    once, thrice = (simulate(CLUSTER, [1], [name], resting=n, **quiet)[0] for n in (1, 3))
    assert thrice.seconds == pytest.approx(3 * once.seconds, rel=1e-3)
    assert 0.2 < once.seconds < 0.5


def threads_after(comm, threads):
    _timed(comm, "data_parallel", 1, True, 1, threads)
    return torch.get_num_threads()


def test_a_rank_alone_has_no_more_threads_than_each_of_many(monkeypatch):
    given = []

    def noted(fn, ranks, *args, **options):
        given.extend(args[-1:])
        return run(fn, ranks, *args, **options)

    monkeypatch.setitem(measure.__globals__, "run", noted)
    measure(lambda p: processes(), [1, 2], ["data_parallel"], turns=1, resting=True, told=len)
    assert given == run(_threads, 2)[:1] * 4
    assert [run(threads_after, 1, many) for many in (1, 2)] == [[1], [2]]


def test_what_is_not_known_is_refused():
    with pytest.raises(ValueError, match="no program 'gossip' among data_parallel, nine_layers"):
        measure(lambda p: None, [1], ["gossip"])
    with pytest.raises(ValueError, match="at least once, not 0 times"):
        measure(lambda p: None, [1], turns=0)


def test_the_command_prints_a_table_and_writes_a_file(tmp_path, capsys):
    path = tmp_path / "here.json"
    program.main(["data_parallel", "--ranks", "1", "2", "--turns", "1", "--resting",
                  "--out", str(path)])  # fmt: skip
    said = capsys.readouterr().out
    assert "data_parallel  strong  measured   1: 100%, 2: " in said
    assert "data_parallel  weak    simulated  1: 100%, 2: " in said
    assert "% serial" in said and f"written to {path}" in said
    assert len(load(path).points) == 8
    used = re.search(r"MFU\) of 1 TFLOP/s a rank:\ndata_parallel  strong  1: (\d+\.\d)%, 2: ", said)
    assert 1 < float(used[1]) <= 100
    ratios = re.search(r"simulated time:\ndata_parallel  strong  1: (.+), 2: (.+)\n", said)
    seconds = {p[2:4]: p.seconds for p in load(path).points if p.scaling == "strong"}
    for ranks, ratio in enumerate(ratios.groups(), 1):
        expected = seconds[ranks, "measured"] / seconds[ranks, "simulated"]
        assert float(ratio) == pytest.approx(expected, abs=0.006)


def test_of_a_known_peak_the_share_is_printed(capsys):
    program.main(["data_parallel", "--ranks", "1", "--turns", "1", "--peak", "1000"])
    assert re.search(
        r"of 1000 TFLOP/s a rank:\ndata_parallel  strong  1: 0\.0%\n", capsys.readouterr().out
    )


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["gossip"], "there is no program 'gossip'"),
    (["--ranks", "2"], "a curve begins with 1 rank"),
    (["--ranks", "1", "0"], "a curve begins with 1 rank"),
    (["--turns", "0"], "at least once, not 0 times"),
    (["--resting", "-1"], "ranks rest 0 times as long or more, not -1"),
    (["--resting", "inf"], "ranks rest 0 times as long or more, not inf"),
    (["--peak", "-1"], "a peak is above 0 TFLOP/s, not -1"),
    (["--out", "/"], "/ exists, and results are not overwritten"),
    (["--out", "/no/such/here.json"], "there is no folder /no/such"),
])  # fmt: skip
def test_a_command_that_cannot_be_is_refused(arguments, sentence, capsys):
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert sentence in capsys.readouterr().err
