"""Snapshots: what servers leave on disk, so that the next run goes on where they were lost."""

import re
from pathlib import Path

import torch

from course.comm.counts import required_count
from course.parallel.whole_files import save_whole

NAME = "shard {} of {}, version {}.pt"


class Snapshots:
    """A `folder` that all servers see; each saves after `every` so many versions.

    A file appears under its name only when it is complete.  How far servers are apart depends on
    how often clients fetch, so a server removes a version only when all have saved a later one.
    Raises ValueError unless `every` is a whole number of 1 or more.
    """

    def __init__(self, folder, every: int = 1):
        self.folder = Path(folder)
        self.every = required_count(every, "the number of versions between snapshots")

    def due(self, version: int) -> bool:
        """Whether this version is to be saved."""
        return version % self.every == 0

    def save(self, shard: int, shards: int, state: dict):
        """Keep `state`, which has a "version"."""
        save_whole(state, self._file(shard, shards, state["version"]))

    def load(self, shard: int, shards: int, version: int) -> dict:
        """What was saved as `version`."""
        return torch.load(self._file(shard, shards, version), weights_only=True)

    def restrict(self, shard: int, shards: int, oldest: int, newest: int):
        """Remove the versions of a shard that are not from `oldest` to `newest`."""
        for version in self.versions(shard, shards):
            if not oldest <= version <= newest:
                self._file(shard, shards, version).unlink()

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
        """The version to begin again with: the newest that is `common` to all shards, or the
        shard's own; None if nothing was learned yet.

        Raises ValueError where there is none, though some shard has learned something.
        """
        by_shard = [self.versions(other, shards) for other in range(shards)]
        found = set.intersection(*map(set, by_shard)) if common else by_shard[shard]
        if not found and any(map(any, by_shard)):
            whose = "common to all shards" if common else f"of shard {shard}"
            raise ValueError(
                f"{self.folder} has no version {whose} to begin again with, but, shard by shard, "
                f"{by_shard}: give back what is missing, or begin anew in an empty folder"
            )
        return max(found, default=None)

    def _file(self, shard, shards, version) -> Path:
        return self.folder / NAME.format(shard, shards, version)
