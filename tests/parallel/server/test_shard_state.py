"""What a server keeps, without any rank: updates, what is saved of them, and where it goes on."""

import pytest
import torch

from course.parallel.server.messages import Push, ReplyHead
from course.parallel.server.shard_state import ShardState
from course.parallel.server.shards import Plan
from course.parallel.server.snapshots import Snapshots
from course.parallel.server.staleness import Applied
from course.parallel.server.updates import adagrad, sgd, slower_if_stale

PLAN = Plan((0, 1), (2, 3), (0, 3, 5))


def state(folder=None, number=0, *, update=None, in_step=True, every=2, scale=None, **values):
    snapshots = folder and Snapshots(folder, every)
    zeros = torch.zeros(3 - number, **values)
    return ShardState(PLAN, number, zeros, update or sgd(1.0), scale, snapshots, in_step)


def ones(shard, client=2, samples=1, based=None):
    gradient = torch.ones_like(shard.values)
    return Push(client, shard.version if based is None else based, samples, gradient)


def test_an_update_is_the_mean_over_samples_and_who_has_none_still_counts():
    shard = state()
    pushes = [Push(2, 0, 3, torch.full((3,), 2.0)), Push(3, 0, 1, torch.full((3,), 6.0))]
    assert shard.apply(pushes) == [Applied(2, 0, 0), Applied(3, 0, 0)]
    assert shard.values.tolist() == [-3.0] * 3
    shard.apply([Push(2, 1, 0, torch.full((3,), float("nan")))])
    assert shard.values.tolist() == [-3.0] * 3 and shard.version == 2
    assert shard.head(2) == ReplyHead(2, 2, -1, 0) and shard.head(3).pushes == 1


def test_the_oldest_gradient_of_an_update_slows_it():
    shard = state(scale=slower_if_stale)
    shard.version = 4
    shard.apply([ones(shard), ones(shard, 3, based=0)])
    assert shard.values.tolist() == [-0.25] * 3


def test_version_0_is_saved_before_anything_is_learned(tmp_path):
    shard = state(tmp_path)
    shard.restore()
    assert Snapshots(tmp_path).versions(0, 2) == [0] and shard.head(2).saved == 0


def test_a_version_stays_until_all_shards_have_saved_a_later_one(tmp_path):
    """However far apart they are: one server makes seven updates, then the other three."""
    first, second, saved = state(tmp_path), state(tmp_path, 1), Snapshots(tmp_path)
    first.restore(), second.restore()
    for _ in range(7):
        first.apply([ones(first)])
    assert saved.versions(0, 2) == [0, 2, 4, 6] and saved.versions(1, 2) == [0]
    for _ in range(3):
        second.apply([ones(second)])
    first.save()
    assert saved.versions(0, 2) == [2, 4, 6, 7] and saved.versions(1, 2) == [2]


def test_who_is_not_in_step_keeps_its_newest_only(tmp_path):
    shard = state(tmp_path, in_step=False)
    shard.restore()
    for _ in range(5):
        shard.apply([ones(shard)])
    assert Snapshots(tmp_path).versions(0, 2) == [4]


def test_both_go_on_from_the_newest_that_both_have_and_forget_what_came_after(tmp_path):
    shards = [state(tmp_path, number, update=adagrad(1.0)) for number in (0, 1)]
    for shard in shards:
        shard.restore()
    for shard, versions in zip(shards, (6, 4)):
        for _ in range(versions):
            shard.apply([ones(shard), ones(shard, 3)])
    again = [state(tmp_path, number, update=adagrad(1.0)) for number in (0, 1)]
    for shard in again:
        shard.restore()
        assert (shard.version, shard.counts) == (4, {2: 4, 3: 4})
        assert shard.state["squares"].tolist() == [4.0] * len(shard.values)
        assert shard.head(3) == ReplyHead(4, 4, 4, 4)
        assert max(Snapshots(tmp_path).versions(shard.number, 2)) == 4


def test_snapshots_of_another_dtype_are_refused(tmp_path):
    for number in (0, 1):
        state(tmp_path, number).restore()
    with pytest.raises(ValueError) as caught:
        state(tmp_path, dtype=torch.float64).restore()
    assert str(caught.value) == (
        f"rank 0: a snapshot in {tmp_path} has float32 [3] of shards with bounds [0, 3, 5], "
        "not float64 [3] of [0, 3, 5]"
    )


def test_without_snapshots_nothing_is_saved():
    shard = state()
    shard.restore(), shard.apply([ones(shard)]), shard.save()
    assert shard.version == 1 and shard.head(2).saved == -1
