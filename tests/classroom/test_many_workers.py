"""Workers side by side learn as they do one by one."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course.classroom import many_workers
from course.learning.training.digits import SEEDS, backward, batches, digit_net, digit_split, judge

WORKERS, BATCH, STEPS = 4, 64, 3


@pytest.fixture(scope="module")
def deals():
    return many_workers.deals(WORKERS, BATCH, STEPS)


def test_every_worker_starts_with_the_network_of_its_seed():
    flat = many_workers.starts(WORKERS)
    for seed, rows in zip(SEEDS, flat, strict=True):
        expected = parameters_to_vector(digit_net(seed).parameters())
        assert all(torch.equal(row, expected) for row in rows)


def test_every_worker_gets_its_part_of_every_batch(deals):
    assert len(deals) == STEPS
    for seed, worker in ((0, 0), (4, 3), (2, 1)):
        mine = batches(digit_split().training, BATCH, STEPS, SEEDS[seed], worker, WORKERS)
        for (x, y), images in zip(deals, mine, strict=True):
            assert torch.equal(x[seed, worker], images.x)
            assert torch.equal(y[seed, worker], images.y)


def test_gradients_are_those_of_the_task(deals):
    flat, (x, y) = many_workers.starts(WORKERS), deals[0]
    found = many_workers.slopes(flat, x, y)
    for seed, worker in ((0, 0), (3, 2)):
        module = digit_net(SEEDS[seed])
        backward(module, x[seed, worker], y[seed, worker])
        expected = torch.cat([p.grad.flatten() for p in module.parameters()])
        assert torch.allclose(found[seed, worker], expected, atol=1e-6)


def test_losses_are_those_of_the_judge():
    flat = many_workers.starts(1)[:, 0]
    for weights, found in zip(flat, many_workers.losses(flat), strict=True):
        module = digit_net(0)
        vector_to_parameters(weights, module.parameters())
        assert float(found) == pytest.approx(judge(module, digit_split().validation).loss, rel=1e-5)
