"""Snapshots: what a server leaves on disk, so that its end is not that of what it learned."""

import os
import re
from pathlib import Path

import torch

NAME = "shard {} of {}, version {}.pt"
KEPT = 2  # servers in step are at most one snapshot apart: of the last two one is common to all


class Snapshots:
    """A `folder` that all servers see; each saves after every so many versions.

    A file appears under its name only when it is complete.  Raises ValueError unless `every` is a
    whole number of 1 or more.
    """

    def __init__(self, folder, every: int = 1):
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            rule = "a snapshot is taken every so many versions, at least 1"
            raise ValueError(f"{rule}, not {every!r}")
        self.folder, self.every = Path(folder), every

    def due(self, version: int) -> bool:
        """Whether this version is to be saved."""
        return version % self.every == 0

    def save(self, shard: int, shards: int, state: dict):
        """Keep `state`, which has a "version", and the one before it."""
        path = self._file(shard, shards, state["version"])
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        for version in self.versions(shard, shards)[:-KEPT]:
            self._file(shard, shards, version).unlink()

    def load(self, shard: int, shards: int, version: int) -> dict:
        """What was saved as `version`."""
        return torch.load(self._file(shard, shards, version), weights_only=True)

    def versions(self, shard: int, shards: int) -> list[int]:
        """The versions of a shard that are there, the newest last.

        Raises ValueError where the folder is of another number of shards.
        """
        pattern, found = re.compile(NAME.format(r"(\d+)", r"(\d+)", r"(\d+)")), []
        for path in self.folder.glob("*.pt"):
            match = pattern.fullmatch(path.name)
            if match and int(match[2]) != shards:
                raise ValueError(
                    f"{self.folder} has snapshots of {match[2]} shards, but there are {shards}"
                )
            if match and int(match[1]) == shard:
                found.append(int(match[3]))
        return sorted(found)

    def newest(self, shard: int, shards: int, *, common: bool):
        """The version to begin again with, None if there is none; `common` to all shards, or the
        shard's own."""
        versions = set(self.versions(shard, shards))
        for other in range(shards) if common else ():
            versions &= set(self.versions(other, shards))
        return max(versions, default=None)

    def _file(self, shard, shards, version) -> Path:
        return self.folder / NAME.format(shard, shards, version)
