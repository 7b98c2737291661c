"""Every sample once an epoch, on any number of ranks; what is left goes to any other number."""

import numpy as np
import pytest

from course.cluster.storage.order import epoch_order, next_step, share, steps_left


def test_an_epoch_has_every_sample_once_and_another_order():
    orders = [epoch_order([5, 0, 7, 1], seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(order) == list(range(13)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert (epoch_order([5, 0, 7, 1], 1, 0) == orders[2]).all()


def test_no_more_shards_than_a_window_are_read_at_a_time():
    order = epoch_order([10] * 20, 0, 0, window=4)
    shards = (order // 10).reshape(5, 40)
    assert all(len(set(part)) == 4 for part in shards)
    assert any((np.diff(part) < 0).any() for part in shards)  # and they are mixed
    assert sorted(order) == list(range(200))


def epoch(left, batch, ranks):
    """What each rank takes in each step."""
    order, steps = np.arange(left), []
    while len(order):
        size = next_step(len(order), batch, ranks)
        steps.append([share(order[:size], rank, ranks) for rank in range(ranks)])
        order = order[size:]
    return steps


@pytest.mark.parametrize("batch", [1, 2, 3, 32])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_sample_once_and_no_rank_without(batch, ranks):
    for n in [ranks, ranks + 1, 2 * ranks + 1, 50, 97]:
        steps = epoch(n, batch, ranks)
        assert len(steps) == steps_left(n, batch, ranks)
        assert (np.concatenate([part for step in steps for part in step]) == range(n)).all()
        sizes = [len(part) for step in steps for part in step]
        assert min(sizes) >= 1
        assert max(sizes) <= (batch if batch > 1 else 2)
        totals = [sum(map(len, step)) for step in steps]
        assert max(totals) - min(totals) <= 1
        if batch > 1:
            assert len(steps) == -(-n // (batch * ranks))


def test_what_is_left_after_some_steps_goes_on_as_it_would_have():
    for n in range(4, 60):
        steps = epoch(n, 3, 2)
        done = sum(map(len, steps[0]))
        again = epoch(n - done, 3, 2) if n > done else []
        assert [[len(p) for p in step] for step in again] == [
            [len(p) for p in step] for step in steps[1:]
        ]


def test_fewer_samples_than_ranks_are_refused():
    with pytest.raises(
        ValueError, match="ranks needs a sample in every step, and 3 are left: fini"
    ):
        next_step(3, 2, 4)
    with pytest.raises(ValueError, match="groups that are read together is a whole number"):
        epoch_order([3], 0, 0, window=0)
