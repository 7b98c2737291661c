"""Between stages: texts go once, posts are found in any order, and on one rank nothing is sent."""

import weakref

import pytest
import torch
from torch import nn

from course.parallel.pipeline import INPUT, Pipeline, Schedule, gpipe, one_forward_one_backward
from course.parallel.pipeline.lanes import LONG_BYTES
from course.parallel.pipeline.mail import BACK, THERE, Mail
from course.parallel.pipeline.parcels import pack, unpack
from course.worlds import run
from tests.worlds.simulator.clusters import switched


def said(comm):
    """Messages that parcels of these shapes take; how the other rank finds them, last one first."""
    mail, shapes = Mail(comm, gpipe(2, 3)), [(2, 2), (2, 2), (3, 1)]
    mail.begin(forward_only=False)
    given = [
        (torch.full(shape, 1.0 + n).requires_grad_(), shape[0]) for n, shape in enumerate(shapes)
    ]
    if comm.rank == 0:
        for number, value in enumerate(given):
            mail.give(pack(value, "it"), 0, 1, number)
        back = [mail.take_back(0, 1, number) for number in (1, 2, 0)]
        mail.settle()
        return comm.meter.sent_messages, [x.shape for (x,) in back]
    found = []
    for number in (2, 0, 1):
        parcel = mail.take(0, 1, number)
        value = unpack(parcel.text, parcel.tensors)
        found.append((value[0].mean().item(), value[1], parcel.differentiable))
    for number in range(3):
        mail.give_back([torch.ones(shapes[number])], 0, 1, number)
    mail.settle()
    return found


def test_a_text_goes_once_and_posts_are_found_in_any_order():
    (messages, shapes), found = run(said, 2, on=switched(2))
    assert messages == 3 + 3 + 2  # heads, tensors, and two texts
    assert shapes == [(2, 2), (3, 1), (2, 2)]
    assert found == [(3.0, 3, [True]), (1.0, 2, [True]), (2.0, 2, [True])]


def at_home(comm):
    schedule = Schedule.of("0F0 1F0 1B0 0B0")
    mail, x = Mail(comm, schedule), torch.ones(2, requires_grad=True)
    mail.begin(forward_only=False)
    mail.give(pack(x, "it"), 0, 1, 0)
    mail.give(pack(((x,), {}), "it"), INPUT, 0, 0)
    assert mail.take(0, 1, 0).tensors[0].mul_(3).tolist() == [3, 3]
    assert x.tolist() == [1, 1]  # who takes it has its own, as from another rank
    assert unpack(*mail.take(INPUT, 0, 0))[1] == {}
    mail.give_back([x], 0, 1, 0)
    assert mail.take_back(0, 1, 0) == [x]
    return comm.meter.sent_messages, THERE != BACK


def test_at_home_nothing_is_sent():
    assert run(at_home, 1, on=switched(1)) == [(0, True)]


class Counting:
    """Lanes that know how many of the tensors that they have sent still are in memory."""

    def __init__(self, lanes):
        self.lanes, self.sent, self.most, self.receive = lanes, [], 0, lanes.receive

    def send(self, x, rank, tag):
        handle = self.lanes.send(x, rank, tag)
        self.sent.append(weakref.ref(x))
        self.most = max(self.most, sum(each() is not None for each in self.sent))
        return handle


def most_in_memory(comm, micro_batches, rows):
    schedule = one_forward_one_backward(comm.size, micro_batches)
    net = [nn.Linear(512, 512, bias=False) for _ in range(comm.size)]
    pipeline = Pipeline(net, comm, schedule, lambda out: out.square().mean())
    lanes = pipeline.mail.lanes = Counting(pipeline.mail.lanes)
    for _ in range(2):
        pipeline.step(torch.ones(micro_batches * rows, 512))
    return lanes.most, sum(each() is not None for each in lanes.sent), len(lanes.sent)


@pytest.mark.parametrize("rows", [1, LONG_BYTES // 2048])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("world", [None, switched])
def test_what_was_sent_is_freed_when_it_has_been_taken(world, ranks, rows):
    """It was kept to the step's end: all activations of the batch, which 1F1B is to avoid."""
    on = {"on": world(ranks)} if world else {}
    few, many = (run(most_in_memory, ranks, n, rows, timeout=20, **on) for n in (6, 12))
    for rank, ((most, left, sent), (same, *_)) in enumerate(zip(few, many)):
        inner = rank not in (0, ranks - 1)
        assert sent == 2 * 6 * (1 + inner) and left <= 2 and most == same <= ranks * (1 + inner) + 2
