"""Tiers between a shared file system and the GPU: how often a cache has the sample, and a copy of
whole shards on the node's own disk.
"""

import math
import shutil
import tempfile
from pathlib import Path

from course.cluster.storage.shards import Shards
from course.learning.samples import check_not_negative


def lru_hits(share: float) -> float:
    """The part of all reads that a cache of `share` of the samples answers from the second epoch
    on, if it throws out what was longest unread, as the page cache does.

    share + (1 - share) ln(1 - share), for epochs in random order: a sample at u of one epoch and v
    of the next is still there if (1 - u v') < share, v' = 1 - v, both uniform.  A copy that is
    kept answers `share`.  Derived; equal samples.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a cache holds a share of the samples between 0 and 1, not {share}")
    return share + (1 - share) * math.log(1 - share) if share < 1 else 1.0


def copy_to_local(shards: Shards, local, capacity_bytes: float) -> Shards:
    """Copy as many of the `shards` as fit into the folder `local`, and read those there.

    Nothing is thrown out again, nor written over: where there is the copy of another data set, or
    of older data, these shards are read where they were, and the rest where the disk is full.  A
    shard appears there when it is whole, so ranks of a node may all do this at once.
    Raises OSError for a folder that cannot be.
    """
    check_not_negative("the capacity in bytes", capacity_bytes)
    try:
        Path(local).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"shards cannot be copied into {local}: {error.strerror}") from error
    for shard in shards.index:
        capacity_bytes -= shard["bytes"]
        if capacity_bytes < 0 or not _copy(shards.folder / shard["file"], Path(local)):
            break
    return Shards(shards.folder, local)


def _copy(path, local) -> bool:
    """Bring one shard to the folder `local`, if there is room."""
    if (local / path.name).exists():
        return True
    try:
        with tempfile.TemporaryDirectory(dir=local, prefix=f".{path.name}.") as beside:
            whole = shutil.copyfile(path, Path(beside, path.name))
            shutil.copystat(path, whole)  # its time says of which data it is the copy
            whole.rename(local / path.name)  # over that of a faster rank: they are the same
    except OSError:
        return False
    return True
