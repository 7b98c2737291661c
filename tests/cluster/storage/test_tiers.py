"""What a cache answers, against one that is simulated; a local copy of whole shards."""

import errno
import os
import shutil
from collections import OrderedDict

import numpy as np
import pytest

from course.cluster.storage.files import Files
from course.cluster.storage.shards import Shards, write_shards
from course.cluster.storage.tiers import copy_to_local, lru_hits
from tests.cluster.storage.pictures import write_pictures


def simulated_hits(samples, capacity, epochs, seed):
    """The part of reads that a least-recently-used cache answers, the first epoch not counted."""
    cache, hits, generator = OrderedDict(), 0, np.random.default_rng(seed)
    for epoch in range(epochs):
        for number in generator.permutation(samples):
            hits += epoch > 0 and number in cache
            cache[number] = None
            cache.move_to_end(number)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits / samples / (epochs - 1)


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.9])
def test_the_page_cache_answers_less_than_it_holds(share):
    assert lru_hits(share) == pytest.approx(simulated_hits(4000, 4000 * share, 6, 0), abs=0.01)
    assert lru_hits(share) < share


def test_all_or_nothing():
    assert (lru_hits(0), lru_hits(1)) == (0, 1)
    assert lru_hits(0.5) == pytest.approx(0.153, abs=0.001)
    with pytest.raises(ValueError, match="a share of the samples between 0 and 1, not 1.5"):
        lru_hits(1.5)


@pytest.fixture
def shards(tmp_path):
    files = Files(write_pictures(tmp_path / "pictures", 12), "*.png")
    return write_shards(files, tmp_path / "shards", 4)


def test_as_many_shards_as_fit_are_read_locally(shards, tmp_path):
    length = shards.index[0]["bytes"]
    tiered = copy_to_local(shards, tmp_path / "local", 2.5 * length)
    assert [path.parent.name for path in tiered.paths] == ["local", "local", "shards"]
    expected = [shards.read(n) for n in range(12)]
    shards.paths[0].unlink()
    assert [tiered.read(n) for n in range(12)] == expected
    assert sorted(os.listdir(tmp_path / "local")) == ["00000.tar", "00001.tar"]


def test_what_is_there_is_not_copied_again(shards, tmp_path):
    local = tmp_path / "local"
    copy_to_local(shards, local, 1e9)
    before = os.stat(local / "00001.tar")
    copy_to_local(shards, local, 1e9)
    assert os.stat(local / "00001.tar").st_mtime_ns == before.st_mtime_ns
    assert len(os.listdir(local)) == 3


def test_half_a_copy_that_another_program_left_is_not_read(shards, tmp_path):
    local = tmp_path / "local"
    local.mkdir()
    (local / "00000.tar").write_bytes(b"half")
    tiered = copy_to_local(shards, local, 1e9)
    assert [path.parent.name for path in tiered.paths] == ["shards", "local", "local"]
    assert (local / "00000.tar").read_bytes() == b"half"


def test_a_full_disk_ends_the_copying(shards, tmp_path, monkeypatch):
    copied = []

    def full(*files):
        copied.append(files)
        if len(copied) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(*files)

    whole = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", full)
    tiered = copy_to_local(shards, tmp_path / "local", 1e9)
    assert [path.parent.name for path in tiered.paths] == ["local", "shards", "shards"]
    assert os.listdir(tmp_path / "local") == ["00000.tar"]


def test_another_rank_that_is_faster_is_no_error(shards, tmp_path, monkeypatch):
    def overtaken(source, target):
        whole(source, tmp_path / "local" / source.name)
        return whole(source, target)

    whole = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", overtaken)
    tiered = copy_to_local(shards, tmp_path / "local", 1e9)
    assert {path.parent.name for path in tiered.paths} == {"local"}
    assert len(os.listdir(tmp_path / "local")) == 3


def test_a_folder_that_cannot_be_is_told(shards, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"shards cannot be copied into .*file/local: Not a dir"):
        copy_to_local(shards, tmp_path / "file" / "local", 1e9)


def test_a_negative_capacity_is_refused(shards, tmp_path):
    with pytest.raises(ValueError, match="the capacity in bytes must be 0 or more, not -1"):
        copy_to_local(shards, tmp_path / "local", -1)


def test_the_copy_of_another_data_set_is_not_read(tmp_path):
    """Tar files are filled up to whole blocks, and so often equally long."""
    sets = []
    for letter in (b"a", b"b"):
        folder = tmp_path / letter.decode()
        folder.mkdir()
        (folder / "0.raw").write_bytes(100 * letter)
        sets.append(write_shards(Files(folder), tmp_path / f"shards {letter.decode()}", 1))
    tiered = [copy_to_local(shards, tmp_path / "local", 1e9) for shards in sets]
    assert [shards.paths[0].parent.name for shards in tiered] == ["local", "shards b"]
    assert [shards.read(0) for shards in tiered] == [100 * b"a", 100 * b"b"]


def test_a_copy_is_out_of_date_when_its_shard_is_written_anew(shards, tmp_path):
    copy_to_local(shards, tmp_path / "local", 1e9)
    os.utime(shards.paths[0], ns=(0, 0))
    assert Shards(shards.folder, tmp_path / "local").paths[0] == shards.paths[0]
