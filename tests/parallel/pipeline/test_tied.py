"""Tied weights have the gradient of all their copies, and stay equal."""

import pytest
import torch
from torch import nn

from course.parallel.pipeline import Pipeline, interleaved, one_forward_one_backward, zero_bubble
from course.worlds import run

WORDS, WIDTH = 11, 4
NAMES = [[(0, "weight"), (3, "weight")]]


def net(seed):
    """The last layer is the first one's transpose."""
    torch.manual_seed(seed)
    middle = [nn.Linear(WIDTH, WIDTH) for _ in range(2)]
    return nn.ModuleList(
        [nn.Embedding(WORDS, WIDTH), *middle, nn.Linear(WIDTH, WORDS, bias=False)]
    ).double()  # fmt: skip


def words(use):
    generator = torch.Generator().manual_seed(use)
    return torch.randint(WORDS, (7 + use, 2), generator=generator).unbind(1)


def tied(comm, schedule):
    """Weights after five updates, every second one of two backwards."""
    pipeline = Pipeline(net(seed=1 + comm.rank), comm, schedule, nn.functional.cross_entropy,
                        tied=NAMES)  # fmt: skip
    begun = {name: p.detach().clone() for name, p in pipeline.named_parameters()}
    optimizer = torch.optim.SGD(pipeline.parameters(), 0.5, momentum=0.9)
    for use in range(5):
        optimizer.zero_grad(set_to_none=use % 2 == 0)
        for _ in range(1 + use % 2):
            x, y = words(use)
            pipeline.step(x, target=y)
        optimizer.step()
    return begun, {name: p.detach() for name, p in pipeline.named_parameters()}


def serially(begun):
    model = net(0)
    model[3].weight = model[0].weight
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(begun[f"parts.{name}"])
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    for use in range(5):
        optimizer.zero_grad()
        for _ in range(1 + use % 2):
            x, y = words(use)
            nn.functional.cross_entropy(nn.Sequential(*model)(x), y).backward()
        optimizer.step()
    return {f"parts.{name}": p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("schedule", [
    one_forward_one_backward(4, 3), zero_bubble(4, 3), interleaved(2, 2, 2), interleaved(1, 2, 4),
], ids=repr)  # fmt: skip
def test_copies_begin_alike_and_are_trained_as_one_weight(schedule):
    """On two ranks, on one, beside other stages of that rank; gradients that accumulate."""
    begun, ended = ({}, {})
    results = run(tied, len(schedule.rows), schedule, timeout=30)
    for before, after in results:
        begun.update(before)
        ended.update(after)
    assert torch.equal(begun["parts.0.weight"], begun["parts.3.weight"])
    assert torch.equal(ended["parts.0.weight"], ended["parts.3.weight"])
    for name, expected in serially(begun).items():
        torch.testing.assert_close(ended[name], expected, rtol=1e-12, atol=1e-12)
