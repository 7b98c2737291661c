"""What is counted and written down when each way trains."""

import os

import pytest
import torch
from torch.profiler import record_function

from course.cluster.frameworks import WAYS, statements, train_in
from course.cluster.frameworks.chrome import BACKWARD, STEP, read, work_of_step
from course.collectives import all_reduce


def two_more(comm, net, deal):
    """A docstring is no statement."""
    if comm.rank:
        net = net
    return net


def undocumented(comm, net, deal):
    return (
        net
    )  # fmt: skip


def test_statements_are_counted_and_not_lines():
    assert (statements(two_more), statements(undocumented)) == (3, 1)
    assert statements(WAYS["one process"]) == 1 < statements(WAYS["DDP"]) == 2


def test_traces_have_the_steps_and_the_messages_of_both_kinds(tmp_path):
    ways = {name: WAYS[name] for name in ("course", "DDP")}
    found = train_in(ways, steps=1, folder=tmp_path)
    for name, each in found.items():
        assert [os.path.basename(path) for path in each.traces] == [
            f"{name}.0.json", f"{name}.1.json"]  # fmt: skip
        assert len([event for event in read(each.traces[0]) if event["name"] == STEP]) == 4
        for path in each.traces:
            kinds = {work.what for work in work_of_step(path)}
            assert kinds == {"arithmetic", "all_reduce", BACKWARD, STEP}
        assert each.step_s > 0
    with pytest.raises(FileExistsError, match="course.0.json exists"):
        train_in(ways, steps=1, folder=tmp_path)


def between_marks(comm, net, deal):
    """An all-reduce in each step, with something before it and something after it."""
    for _ in deal():
        for mark in ("before", "after"):
            if mark == "after":
                all_reduce(comm, torch.ones(9))
            with record_function(mark):
                torch.ones(300, 300) @ torch.ones(300, 300)


def test_our_messages_stand_where_they_were_in_every_step(tmp_path):
    (path, _) = train_in({"marks": between_marks}, steps=1, folder=tmp_path)["marks"].traces
    spans = {name: [] for name in ("before", "course:all_reduce", "after")}
    for event in sorted(read(path), key=lambda event: event["ts"]):
        if event["name"] in spans:
            spans[event["name"]].append((event["ts"], event["ts"] + event["dur"]))
    steps = list(zip(*spans.values(), strict=True))
    right = [before[1] <= at[0] and at[1] <= after[0] for before, at, after in steps]
    assert len(right) == 4 and sum(right) >= 3  # a rank may be stopped while it reads the clock


def test_without_a_folder_nothing_is_profiled():
    (only,) = train_in({"one process": WAYS["one process"]}, 1, steps=2).values()
    assert only.traces == () and len(only.losses) == 5
