"""Samples in shards: tar files of many, with an index that says where each begins.

A shard is opened once and read often, and any program that knows tar can read it, too.
"""

import functools
import io
import json
import os
import tarfile
import tempfile
import weakref
from pathlib import Path

from course.comm.counts import required_count

INDEX, OPEN_SHARDS = "index.json", 64


def write_shards(source, folder, per_shard: int) -> "Shards":
    """Write the samples of `source` into the new `folder`, `per_shard` of them in each tar file.

    It is complete or not there.  Raises FileExistsError where there is such a folder already,
    OSError where it cannot be written.
    """
    required_count(per_shard, "the number of samples in a shard")
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"shards go into a new folder, and {folder} is there already")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
            whole = Path(beside, "whole")
            whole.mkdir()
            index = [_write_shard(source, whole / f"{first // per_shard:05}.tar",
                                  range(first, min(first + per_shard, len(source))))
                     for first in range(0, len(source), per_shard)]  # fmt: skip
            (whole / INDEX).write_text(json.dumps(index))
            whole.rename(folder)
    except OSError as error:
        told = error.strerror or error
        raise type(error)(f"no shards were written to {folder}: {told}") from error
    return Shards(folder)


def _write_shard(source, path, numbers) -> dict:
    """Write one tar file; what the index says of it."""
    samples = []
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            data, member = source.read(number), tarfile.TarInfo(source.names[number])
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
            blocks = -(-len(data) // tarfile.BLOCKSIZE)  # the data fill whole blocks at the end
            samples.append([member.name, tar.offset - blocks * tarfile.BLOCKSIZE, len(data)])
    return {"file": path.name, "bytes": path.stat().st_size, "samples": samples}


class Shards:
    """The shards in `folder`, as `write_shards` left them; those of which `copy_to_local` has left
    a copy in the folder `local` are read there.

    A source of samples, as `Files` is.  Threads may read at once.  Raises FileNotFoundError for
    what is missing, ValueError for a shard that is not as long as it was.
    """

    def __init__(self, folder, local=None):
        self.folder, self.local = Path(folder), local
        self.index = _read_index(self.folder / INDEX)
        self.paths = [_found(self.folder, local, **shard) for shard in self.index]
        self.places = [(number, offset, size) for number, shard in enumerate(self.index)
                       for _, offset, size in shard["samples"]]  # fmt: skip
        self.names = [name for shard in self.index for name, _, _ in shard["samples"]]
        self.groups = [len(shard["samples"]) for shard in self.index]
        self._opened = functools.lru_cache(OPEN_SHARDS)(_Opened)

    def __len__(self):
        return len(self.places)

    def __reduce__(self):  # ranks open their own files
        return Shards, (self.folder, self.local)

    def read(self, number: int) -> bytes:
        """The bytes of one sample.  Raises OSError, a sentence, where they cannot be read."""
        shard, offset, size = self.places[number]
        opened = self._opened(self.paths[shard])  # and stays so until it has been read
        data = os.pread(opened.descriptor, size, offset)
        if len(data) < size:
            raise OSError(
                f"{self.names[number]} is {size} bytes long, and {self.paths[shard]}, cut short "
                f"since it was opened, has {len(data)} of them"
            )
        return data


class _Opened:
    """A file that is open for as long as anybody reads it."""

    def __init__(self, path):
        self.descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)


def _read_index(path):
    try:
        index = json.loads(path.read_text())
    except OSError as error:
        raise type(error)(
            f"{path.parent} must hold shards and their {INDEX}, as `write_shards` leaves them, and "
            f"that cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} must be whole, and cannot be read: {error}") from error
    if not (isinstance(index, list) and all(map(_is_shard, index))):
        raise ValueError(f"{path} is no index of shards, as `write_shards` leaves it")
    return index


def _is_shard(told) -> bool:
    match told:
        case {"file": str(file), "bytes": int(length), "samples": list(samples), **others}:
            return not others and Path(file).name == file and all(_fits(x, length) for x in samples)
    return False


def _fits(sample, length) -> bool:
    match sample:
        case [str(), int(offset), int(size)]:
            return offset >= 0 and size >= 0 and offset + size <= length
    return False


def _found(folder, local, file, bytes, samples):
    """Where a shard is read; raises FileNotFoundError or ValueError where it cannot be."""
    whole = folder / file
    if not whole.exists():
        raise FileNotFoundError(f"{folder} must hold {len(samples)} samples in {file}: it is gone")
    if (length := whole.stat().st_size) != bytes:
        raise ValueError(f"{whole} must be {bytes} bytes long, and has {length}")
    copied = local is not None and _alike(Path(local, file), whole)
    return Path(local, file) if copied else whole


def _alike(copy, whole) -> bool:
    """Whether it is as long, and of the same moment: other data may be as long."""
    if not copy.exists():
        return False
    told = [(stat.st_size, stat.st_mtime_ns) for stat in (copy.stat(), whole.stat())]
    return told[0] == told[1]
