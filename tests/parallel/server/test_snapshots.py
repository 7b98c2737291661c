"""Snapshots: complete or not there; one that all shards have, or a sentence."""

import os

import pytest
import torch

from course.parallel.server.snapshots import Snapshots


def save(snapshots, shard, version, shards=2):
    values = torch.full((3,), float(version))
    snapshots.save(shard, shards, {"version": version, "values": values, "counts": {5: version}})


def test_what_is_saved_is_loaded(tmp_path):
    snapshots = Snapshots(tmp_path / "new", every=3)
    save(snapshots, 0, 6)
    state = snapshots.load(0, 2, 6)
    assert torch.equal(state["values"], torch.full((3,), 6.0))
    assert (state["version"], state["counts"]) == (6, {5: 6})
    assert [version for version in range(8) if snapshots.due(version)] == [0, 3, 6]


def test_what_is_too_old_or_too_new_is_removed_and_other_shards_stay(tmp_path):
    snapshots = Snapshots(tmp_path)
    for version in (2, 4, 10, 8):
        save(snapshots, 0, version)
    save(snapshots, 1, 2)
    snapshots.restrict(0, 2, 4, 8)
    assert snapshots.versions(0, 2) == [4, 8] and snapshots.versions(1, 2) == [2]


def test_the_newest_of_a_shard_and_the_newest_that_all_have(tmp_path):
    snapshots = Snapshots(tmp_path)
    assert snapshots.newest(0, 2, common=True) is snapshots.newest(0, 2, common=False) is None
    save(snapshots, 0, 0)  # the other server was lost before anything was learned
    assert snapshots.newest(0, 2, common=True) is snapshots.newest(1, 2, common=False) is None
    save(snapshots, 0, 2), save(snapshots, 0, 4), save(snapshots, 1, 2)
    assert [snapshots.newest(shard, 2, common=True) for shard in (0, 1)] == [2, 2]
    assert [snapshots.newest(shard, 2, common=False) for shard in (0, 1)] == [4, 2]


def test_what_was_learned_but_not_by_all_is_not_passed_over(tmp_path):
    snapshots = Snapshots(tmp_path)
    save(snapshots, 0, 6), save(snapshots, 0, 7)
    for shard, common, whose in ((0, True, "common to all shards"), (1, False, "of shard 1")):
        with pytest.raises(ValueError) as caught:
            snapshots.newest(shard, 2, common=common)
        assert str(caught.value) == (
            f"{tmp_path} has no version {whose} to begin again with, but, shard by shard, "
            "[[6, 7], []]: give back what is missing, or begin anew in an empty folder"
        )
    save(snapshots, 1, 4), save(snapshots, 1, 5)
    with pytest.raises(ValueError, match=r"\[\[6, 7\], \[4, 5\]\]"):
        snapshots.newest(1, 2, common=True)
    assert snapshots.newest(1, 2, common=False) == 5


def test_who_dies_while_saving_leaves_the_last_one_whole(tmp_path, monkeypatch):
    snapshots = Snapshots(tmp_path)
    save(snapshots, 0, 1)

    def killed(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        save(snapshots, 0, 2)
    assert snapshots.versions(0, 2) == [1] and snapshots.load(0, 2, 1)["version"] == 1


def test_a_folder_of_another_number_of_shards(tmp_path):
    snapshots = Snapshots(tmp_path)
    save(snapshots, 0, 1, shards=3)
    with pytest.raises(ValueError, match="has snapshots of 3 shards, but there are 2"):
        snapshots.newest(0, 2, common=False)


@pytest.mark.parametrize("every", [0, -2, 1.5, True, None])
def test_every_is_a_whole_number(every):
    with pytest.raises(ValueError) as caught:
        Snapshots("anywhere", every)
    rule = "the number of versions between snapshots is a whole number, 1 or more"
    assert str(caught.value) == f"{rule}, not {every!r}"
