"""What cannot be is refused in one sentence: the rule, the value, the rank."""

import re

import pytest
import torch

from course.comm import ANY, Trace
from course.worlds import processes, run

RANKS = "rank 1 cannot {} rank {}: the ranks are 0 to 1"
TAG = "rank 1: a tag is a whole number from 0 to 2147483647, not {}"
SEND, RECEIVE = "rank 1: what is sent", "rank 1: the tensor to receive into"
META = "rank 1: a tensor on the meta device has no memory"
x = torch.zeros(3)

CALLS = {
    "send to a rank too high": (lambda c: c.send(x, 2), RANKS.format("send to", 2)),
    "send to a rank too low": (lambda c: c.send(x, -1), RANKS.format("send to", -1)),
    "send to no rank": (lambda c: c.send(x, None), RANKS.format("send to", None)),
    "send to a name": (lambda c: c.isend(x, "0"), RANKS.format("send to", "'0'")),
    "send to a half": (lambda c: c.isend(x, 0.5), RANKS.format("send to", 0.5)),
    "send to a whole float": (lambda c: c.isend(x, 1.0), RANKS.format("send to", 1.0)),
    "send to many": (lambda c: c.send(x, [0]), RANKS.format("send to", "[0]")),
    "send to any": (lambda c: c.send(x, ANY), RANKS.format("send to", "'any rank'")),
    "receive from a rank too high": (lambda c: c.recv(x, 2), RANKS.format("receive from", 2)),
    "receive from a rank too low": (lambda c: c.irecv(x, -2), RANKS.format("receive from", -2)),
    "receive from no rank": (lambda c: c.recv(x, None), RANKS.format("receive from", None)),
    "exchange with a wrong target": (lambda c: c.exchange(x, 9, x, 0), RANKS.format("send to", 9)),
    "exchange with a wrong source": (
        lambda c: c.exchange(x, 0, x, 9), RANKS.format("receive from", 9)),
    "a tag too low": (lambda c: c.send(x, 0, -1), TAG.format(-1)),
    "a tag too high": (lambda c: c.send(x, 0, 2**31), TAG.format(2**31)),
    "a tag that is none": (lambda c: c.recv(x, 0, None), TAG.format(None)),
    "a tag that is a word": (lambda c: c.recv(x, 0, "a"), TAG.format("'a'")),
    "a tag that is a float": (lambda c: c.exchange(x, 0, x, 0, 1.0), TAG.format(1.0)),
    "send a list": (lambda c: c.send([1.0], 0), SEND + " must be a tensor, not list [1.0]"),
    "send a number": (lambda c: c.send(3.5, 0), SEND + " must be a tensor, not float 3.5"),
    "send nothing": (lambda c: c.send(None, 0), SEND + " must be a tensor, not NoneType None"),
    "receive into an array": (lambda c: c.recv(x.numpy(), 0),
                              RECEIVE + " must be a tensor, not ndarray array([0., 0., 0.]"),
    "send a sparse one": (lambda c: c.send(x.to_sparse(), 0),
                          SEND + " must be a dense tensor, not torch.sparse_coo"),
    "send an odd dtype": (lambda c: c.send(x.to(torch.float8_e5m2), 0),
                          SEND + " has dtype torch.float8_e5m2, which no message carries"),
    "receive an odd dtype": (lambda c: c.recv(x.to(torch.uint16), 0),
                             RECEIVE + " has dtype torch.uint16, which no message carries"),
    "receive into an expanded one": (
        lambda c: c.recv(torch.zeros(3, 1).expand(3, 2), 0),
        "rank 1: cannot receive into an expanded tensor (float32 [3, 2] with strides [1, 0]): "
        "several of its elements share one place"),
    "receive into overlapping windows": (
        lambda c: c.recv(torch.zeros(5).unfold(0, 3, 1), 0),
        "rank 1: cannot receive into an expanded tensor (float32 [3, 3] with strides [1, 1]): "
        "several of its elements share one place"),
    "send without memory": (lambda c: c.send(torch.empty(3, device="meta"), 0), META),
    "receive without memory": (lambda c: c.recv(torch.empty(3, device="meta"), 0), META),
}  # fmt: skip


def refusals(comm, names):
    if comm.rank != 1:
        out = torch.zeros(3)
        comm.recv(out, 1)
        return out.tolist()
    said = []
    for name in names:
        try:
            CALLS[name][0](comm)
            said.append("nothing")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    comm.send(torch.ones(3), 0)  # nothing of all this is under way
    assert comm.meter.sent_messages == 1 and not comm._transport.receiver.matcher.posted
    return said


def test_every_wrong_call_is_refused_with_its_reason():
    out, said = run(refusals, 2, list(CALLS))
    for name, sentence, (_, rule) in zip(CALLS, said, CALLS.values()):
        assert sentence.startswith(f"ValueError: {rule}"), name
    assert out == [1, 1, 1]


def alone(comm):
    comm.send(torch.zeros(1), 1)


def test_a_rank_that_is_alone_is_told_so():
    with pytest.raises(Exception, match="rank 0 cannot send to rank 1: the only rank is 0$"):
        run(alone, 1)


@pytest.mark.parametrize("ranks", [0, -1, True, 2.5, 2.0, "2", None, [2]])
def test_a_number_of_ranks_that_cannot_be(ranks):
    rule = f"a run needs a whole number of ranks, at least 1, not {ranks!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        run(alone, ranks)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", [1]])
def test_a_time_out_that_cannot_be(timeout):
    rule = f"a time-out is a positive number of seconds, or None, not {timeout!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        run(alone, 1, timeout=timeout)


@pytest.mark.parametrize("nodes", [[0], [0, 0, 1]])
def test_nodes_that_do_not_match(nodes):
    rule = f"^nodes names a machine for {len(nodes)} ranks, but there are 2$"
    with pytest.raises(ValueError, match=rule):
        run(alone, 2, on=processes(nodes=nodes))


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:77"])
def test_a_device_that_cannot_be(device):
    with pytest.raises(
        ValueError, match=f'^device must be "cpu", "cuda" or None, not \'{device}\'$'
    ):
        run(alone, 1, on=processes(device=device))


@pytest.mark.parametrize("on", ["processes", processes, 4])
def test_a_world_that_is_none(on):
    with pytest.raises(ValueError, match=r"^on must be a world such as processes\(\), not "):
        run(alone, 1, on=on)


@pytest.mark.parametrize("trace", ["trace.json", Trace])
def test_a_trace_that_is_none(trace):
    with pytest.raises(ValueError, match=r"^trace must be a Trace\(\), not "):
        run(alone, 1, trace=trace)


def splits(comm, *color_and_key):
    try:
        return comm.split(*color_and_key)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("color, key", [(x, 1), (0, "a"), ({1}, 1), (0, x), (0, 0.5)])
def test_a_color_or_key_that_cannot_be(color, key):
    assert run(splits, 1, color, key) == [
        "rank 0: a color is a number, a text or a tuple of such, and a key is a whole number, "
        f"not {color!r} and {key!r}"
    ]
