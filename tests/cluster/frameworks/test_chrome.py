"""Chrome traces: what is read from them, and what is written."""

import json

import pytest

from course.cluster.frameworks.chrome import (
    BACKWARD,
    STEP,
    Work,
    add_messages,
    calls_a_step,
    exposed_s,
    for_perfetto,
    read,
    union,
    work_of_step,
)
from course.comm.trace import Event


def lasted(name, ts, dur, tid=7):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


@pytest.fixture
def path(tmp_path):
    """A long step, then one of 100 us that begins at 1000 us."""
    events = [
        lasted(STEP, 0, 500), lasted("aten::mm", 10, 400),
        lasted("gloo:all_reduce", 1040, 40, tid=8), lasted(STEP, 1000, 100),
        lasted("aten::addmm", 1010, 20), lasted("aten::mm", 1015, 5), lasted("aten::add", 1050, 10),
        lasted("aten::copy_", 1035, 50, tid=8), lasted("Python", 1000, 90),
        {"ph": "M", "name": "process_name", "pid": 1, "args": {}}, lasted("aten::mm", 1100, 5),
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def rounded(work):
    return [(each.what, round(1e6 * each.start), round(1e6 * each.end)) for each in work]


def test_the_shortest_step_is_taken_and_its_work_in_order(path):
    assert rounded(work_of_step(path)) == [
        ("all_reduce", 40, 80), ("arithmetic", 10, 30), ("arithmetic", 50, 60), (STEP, 0, 100)
    ]  # fmt: skip


def test_what_waits_inside_of_an_operation_is_no_arithmetic(tmp_path):
    """An operation of DTensor multiplies, waits for a message, and adds."""
    waits = [
        lasted(STEP, 0, 100), lasted("aten::addmm", 10, 60), lasted("aten::mm", 12, 10),
        lasted("_c10d_functional::wait_tensor", 30, 30), lasted("aten::view", 31, 2),
        lasted("gloo:all_reduce", 25, 33, tid=8), lasted("aten::add", 70, 5),
    ]  # fmt: skip
    path = tmp_path / "waits.json"
    path.write_text(json.dumps({"traceEvents": waits}))
    assert rounded(work_of_step(path))[:-1] == [
        ("all_reduce", 25, 58), ("arithmetic", 10, 30), ("arithmetic", 31, 33),
        ("arithmetic", 60, 75),
    ]  # fmt: skip
    assert round(1e6 * exposed_s(work_of_step(path))) == 26


def test_backward_is_what_autograd_runs_and_hides_nothing(tmp_path):
    events = [
        lasted(STEP, 0, 100), lasted("aten::mm", 5, 10), lasted("aten::mm", 42, 10),
        lasted("autograd::engine::evaluate_function: AddmmBackward0", 40, 20),
        lasted("autograd::engine::evaluate_function: TBackward0", 60, 5),
        lasted("gloo:all_reduce", 55, 20, tid=8),
    ]  # fmt: skip
    path = tmp_path / "backward.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert (BACKWARD, 40, 65) in rounded(work_of_step(path))
    assert round(1e6 * exposed_s(work_of_step(path))) == 20


def test_a_message_whose_end_is_noted_after_the_step_ends_with_it(tmp_path):
    events = [lasted(STEP, 0, 100), lasted("gloo:all_reduce", 80, 50, tid=8)]
    path = tmp_path / "late.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert rounded(work_of_step(path)) == [("all_reduce", 80, 100), (STEP, 0, 100)]


def test_messages_are_counted_by_their_names_and_for_each_step(path):
    assert calls_a_step(path) == {"gloo:all_reduce": 0.5}


def test_exposed_are_messages_beside_which_nothing_is_computed(path):
    assert round(1e6 * exposed_s(work_of_step(path))) == 30
    both = [Work("send", 0, 2), Work("recv", 1, 3), Work("arithmetic", 2, 9), Work(STEP, 0, 9)]
    assert exposed_s(both) == 2


def test_spans_that_overlap_or_touch_are_one():
    assert union([(3, 4), (0, 2), (1, 1.5), (2, 2.5)]) == [(0, 2.5), (3, 4)]
    assert union([]) == []


def test_messages_of_another_clock_stand_where_they_were(path):
    of_course = Event(0, "all_reduce", -1, 0, 80, 50.00405, 50.00407, "", True)
    its_send = of_course._replace(operation="send", peer=1)
    add_messages(path, [of_course, its_send], [50.0, 50.004, 50.1])
    (added,) = [event for event in read(path) if event["name"].startswith("course:")]
    assert added["name"] == "course:all_reduce" and added["args"] == {"bytes": 80}
    assert (round(added["ts"]), round(added["dur"])) == (1050, 20)
    assert ("all_reduce", 40, 80) in rounded(work_of_step(path))


def test_ranks_for_perfetto_are_processes_of_one_trace(path, tmp_path):
    out = tmp_path / "both.json"
    for_perfetto([path, path], out)
    assert {event["pid"] for event in read(out)} == {0, 1}
    assert len(read(out)) == 2 * len(read(path))
    names = [
        e["args"]["name"] for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "M"
    ]
    assert names == ["rank 0", "rank 1"]
    with pytest.raises(FileExistsError):
        for_perfetto([path], out)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": '])
def test_what_is_no_trace_is_refused(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="other.json is no Chrome trace"):
        read(path)


def test_a_trace_without_steps_is_refused(tmp_path):
    path = tmp_path / "none.json"
    path.write_text(json.dumps({"traceEvents": [lasted("aten::mm", 0, 1)]}))
    with pytest.raises(ValueError, match="has no event that is called 'step'"):
        work_of_step(path)
