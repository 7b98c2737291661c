"""What is counted while samples are really read, and that the kernel forgets them first."""

import os

import pytest

from course.cluster.storage import reading
from course.cluster.storage.files import Files
from course.cluster.storage.reading import Reading, drop_cached, read_timed
from course.cluster.storage.shards import write_shards


@pytest.fixture
def files(tmp_path):
    for number in range(3):
        path = tmp_path / "files" / str(number)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(10_000 * (number + 1)))
    return Files(tmp_path / "files")


def test_samples_and_bytes_are_counted(files, tmp_path):
    decoded = []
    for source in (files, write_shards(files, tmp_path / "shards", 2)):
        told = read_timed(source, [2, 0, 2], decode=lambda *sample: decoded.append(sample))
        assert (told.samples, told.nbytes) == (3, 70_000)
        assert told.seconds > 0
    assert [(name, len(data)) for name, data in decoded] == 2 * [
        ("2", 30_000), ("0", 10_000), ("2", 30_000)
    ]  # fmt: skip


def test_rates_are_per_second():
    told = Reading(10, 500, 0.5)
    assert (told.samples_per_s, told.bytes_per_s) == (20, 1000)


def cached(path):
    """Whether the first page can be read without the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(100)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def forgets(path):
    """Whether this kernel forgets a file here at all, which it does not where files are memory."""
    path.write_bytes(bytes(10_000))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    return not cached(path)


def all_forgotten(paths) -> bool:
    drop_cached(paths)
    return not any(map(cached, paths))


def test_the_kernel_forgets_what_was_read(files, tmp_path):
    if not hasattr(os, "RWF_NOWAIT") or not forgets(tmp_path / "probe"):
        pytest.skip("this system keeps what it was told to forget, or cannot say what it keeps")
    files.read(0)
    assert cached(files.paths[0])
    assert any(all_forgotten(files.paths) for _ in range(5))  # to ask makes the kernel read


@pytest.mark.parametrize("cold", [False, True])
def test_only_cold_reading_begins_with_forgetting(files, cold, monkeypatch):
    forgotten = []
    monkeypatch.setattr(reading, "drop_cached", forgotten.extend)
    read_timed(files, [0], cold=cold)
    assert forgotten == (files.paths if cold else [])
