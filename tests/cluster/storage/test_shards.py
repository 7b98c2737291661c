"""Shards hold the same samples as the files, for any program; broken ones are told."""

import errno
import json
import os
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from course.cluster.storage import shards as module
from course.cluster.storage.files import Files
from course.cluster.storage.shards import Shards, write_shards


@pytest.fixture
def files(tmp_path):
    lengths = [0, 1, 511, 512, 513, 5000, 7]
    for number, length in enumerate(lengths):
        path = tmp_path / "files" / (f"{number}" * (60 if number % 2 else 1) + "é" * (number == 5))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(length))
    return Files(tmp_path / "files")


def test_shards_hold_what_the_files_hold(files, tmp_path):
    shards = write_shards(files, tmp_path / "deep" / "shards", 3)
    assert shards.groups == [3, 3, 1]
    assert shards.names == files.names
    assert [shards.read(n) for n in range(len(shards))] == [files.read(n) for n in range(7)]


def test_tar_reads_them_too(files, tmp_path):
    shards = write_shards(files, tmp_path / "shards", 4)
    for path in shards.paths:
        with tarfile.open(path) as tar:
            for member in tar:
                data = tar.extractfile(member).read()
                assert data == files.read(files.names.index(member.name))


def test_a_long_name_has_a_longer_head(files, tmp_path):
    (files.folder / ("x" * 200)).write_bytes(b"long")
    longer = Files(files.folder)
    shards = write_shards(longer, tmp_path / "shards", 100)
    assert [shards.read(n) for n in range(8)] == [longer.read(n) for n in range(8)]


def test_threads_read_at_once(files, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "OPEN_SHARDS", 2)
    shards = write_shards(files, tmp_path / "shards", 1)
    numbers = [n % 7 for n in range(500)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shards.read, numbers)) == [files.read(n) for n in numbers]
    assert len(os.listdir("/proc/self/fd")) < 100


def test_other_processes_open_them_anew(files, tmp_path):
    shards = write_shards(files, tmp_path / "shards", 3)
    shards.read(0)
    assert pickle.loads(pickle.dumps(shards)).read(5) == files.read(5)


def test_nothing_is_overwritten(files, tmp_path):
    (tmp_path / "shards").mkdir()
    with pytest.raises(FileExistsError, match="go into a new folder, and .*shards is there"):
        write_shards(files, tmp_path / "shards", 3)
    with pytest.raises(ValueError, match="samples in a shard is a whole number, 1 or more, not 0"):
        write_shards(files, tmp_path / "others", 0)


def test_a_full_disk_leaves_nothing(files, tmp_path, monkeypatch):
    written = []

    def full(*arguments):
        written.append(arguments)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(*arguments)

    whole = module._write_shard
    monkeypatch.setattr(module, "_write_shard", full)
    with pytest.raises(OSError, match="no shards were written to .*: No space left on device"):
        write_shards(files, tmp_path / "shards", 3)
    assert os.listdir(tmp_path) == ["files"]


def cut(path, length):
    with open(path, "r+b") as file:
        file.truncate(length)


def test_broken_shards_are_refused(files, tmp_path):
    shards = write_shards(files, tmp_path / "shards", 3)
    length = shards.paths[1].stat().st_size
    cut(shards.paths[1], 1000)
    with pytest.raises(ValueError, match=f"00001.tar must be {length} bytes long, and has 1000"):
        Shards(tmp_path / "shards")
    shards.paths[1].unlink()
    with pytest.raises(FileNotFoundError, match="must hold 3 samples in 00001.tar: it is gone"):
        Shards(tmp_path / "shards")


def test_a_shard_cut_short_while_it_is_read(files, tmp_path):
    shards = write_shards(files, tmp_path / "shards", 7)
    shards.read(0)
    cut(shards.paths[0], 1000)
    with pytest.raises(OSError, match="is 5000 bytes long, and .*, cut short since it was opened"):
        shards.read(shards.names.index(next(name for name in shards.names if "é" in name)))


@pytest.mark.parametrize("shard", [
    7, {"file": "a.tar", "bytes": 100}, {"file": 1, "bytes": 100, "samples": []},
    {"file": "../a.tar", "bytes": 100, "samples": []},
    {"file": "a.tar", "bytes": 100, "samples": 1},
    *({"file": "a.tar", "bytes": 100, "samples": [sample]}
      for sample in (3, ["x", 0], ["x", -5, 5], ["x", 0, 101], ["x", 0.5, 5], [1, 0, 5])),
])  # fmt: skip
def test_an_index_that_cannot_be(tmp_path, shard):
    (tmp_path / "a.tar").write_bytes(bytes(100))
    (tmp_path / "index.json").write_text(json.dumps([shard]))
    with pytest.raises(ValueError, match="index.json is no index of shards"):
        Shards(tmp_path)


def test_a_folder_without_index(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold shards and their index.json"):
        Shards(tmp_path)
    with pytest.raises(NotADirectoryError, match="shards and their index.json, .* cannot be read"):
        Shards(__file__)
    (tmp_path / "index.json").write_text('[{"file":')
    with pytest.raises(ValueError, match="index.json must be whole, and cannot be read"):
        Shards(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({"made": "elsewhere"}))
    with pytest.raises(ValueError, match="index.json is no index of shards"):
        Shards(tmp_path)
