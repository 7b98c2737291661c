"""What imagined ranks print looks like what processes print."""

import sys

from course.worlds import processes, run
from tests.worlds.simulator.clusters import switched


def say(comm):
    print(f"rank {comm.rank} begins")
    comm.barrier()
    print("and ends")


def test_ranks_print_as_processes_do(capsys):
    run(say, 3, on=switched(3))
    imagined = capsys.readouterr().out
    run(say, 3, on=processes())
    assert imagined == capsys.readouterr().out
    assert imagined.splitlines()[:3] == ["[0] rank 0 begins", "[0] and ends", "[1] rank 1 begins"]


def complain(comm):
    print(f"rank {comm.rank} complains", file=sys.stderr)
    print("no end of line", end="")


def test_errors_and_open_lines_are_kept_apart(capsys):
    run(complain, 2, on=switched(2))
    imagined = capsys.readouterr()
    run(complain, 2, on=processes())
    assert imagined == capsys.readouterr()
    assert imagined.err == "[0] rank 0 complains\n[1] rank 1 complains\n"


def test_with_live_ranks_print_as_they_go(capsys):
    run(say, 3, on=switched(3), live=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"[{rank}] rank {rank} begins" for rank in range(3)]


def test_the_caller_prints_as_before(capsys):
    streams = sys.stdout, sys.stderr
    run(say, 1, on=switched(1))
    assert (sys.stdout, sys.stderr) == streams
    print("here")
    assert capsys.readouterr().out.endswith("\nhere\n")
