"""Every sample once an epoch, from wherever one begins."""

import pytest
import torch

from course.cluster.failover import Order


def test_every_sample_once_an_epoch():
    order = Order(7, 3, seed=1)
    epochs = [torch.cat([order.next() for _ in range(3)]).tolist() for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(7))] * 2 and epochs[0] != epochs[1]


@pytest.mark.parametrize("dealt", [0, 2, 3, 10])
def test_it_goes_on_where_it_was(dealt):
    order, later = Order(7, 3, seed=1), Order(7, 3, seed=1)
    for _ in range(dealt):
        order.next()
    later.next()
    later.load(order.shared(), [None], 0, 1)
    assert [later.next().tolist() for _ in range(5)] == [order.next().tolist() for _ in range(5)]
    assert later.dealt == dealt + 5


def test_another_order_is_described_otherwise():
    orders = Order(7, 3, 1), Order(7, 3, 2), Order(7, 2, 1), Order(8, 3, 1)
    assert len({order.describe()[0] for order in orders}) == 4
    assert orders[0].describe() == ["batches of 3 of 7 samples, seed 1"]


def test_a_batch_that_cannot_be():
    with pytest.raises(ValueError, match="a batch of 8 cannot be drawn from 7 samples"):
        Order(7, 8, 1)
