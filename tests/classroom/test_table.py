"""Columns stand below one another; what was counted stands above what was predicted."""

import torch

from course.classroom.table import beside, row
from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_10G, FREE
from course.collectives import cost
from course.comm import Trace
from course.worlds import run, simulated


def test_the_columns_of_all_rows_end_at_the_same_places(capsys):
    row("", ["a device", "another"], "s")
    row("TFLOP/s", [3.09, 989.0], ".1f")
    row("largest layer", [15_811.4, 70_710.7])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["TFLOP/s", "3.1", "989.0"], ["largest", "layer", "15,811", "70,711"]]  # fmt: skip
    assert {len(line) for line in lines} == {29 + 2 * 12}
    assert {line[40] for line in lines} == {"e", "1"} and lines[0][:41].endswith("a device")


def test_a_run_stands_above_its_formula(capsys):
    def pass_on(comm):
        x = torch.zeros(5)
        if comm.rank == 0:
            comm.send(x, 1)
        else:
            comm.recv(x, 0)

    trace = Trace()
    run(pass_on, 2, on=simulated(one_switch(2, FREE, ETHERNET_10G)), trace=trace)
    beside(trace, cost.broadcast(2, 24))
    assert capsys.readouterr().out.splitlines() == [
        "counted   1 steps, bytes sent by rank [20, 0]",
        "predicted 1 steps, bytes sent by rank [24, 0]",
    ]
