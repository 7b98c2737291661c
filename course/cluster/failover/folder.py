"""The folder of a training's checkpoints: one folder each, that gets its name once it is whole.

Nothing is written over: what has a name already, since it is damaged, is moved aside, and only what
is older than the last ones is removed.
"""

import contextlib
import fcntl
import os
import re
import shutil
from pathlib import Path

from course.parallel.whole_files import sync_folder

STEP = re.compile(r"step (\d+)")
UNFINISHED = re.compile(r"step \d+\.(unfinished|removed)")


class CheckpointFolder:
    """`path`, which all ranks see."""

    def __init__(self, path):
        self.path, self.descriptor = Path(path).absolute(), None

    def lock(self):
        """Make it this process's own until `unlock`, or its end; remove what was never finished.

        Raises ValueError where another training has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise ValueError(f"{self.path} is in use by another training") from None
        for path in self.path.iterdir():
            if UNFINISHED.fullmatch(path.name):
                shutil.rmtree(path)

    def unlock(self):
        """Let others have it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, whole or damaged since, the newest last."""
        if not self.path.is_dir():
            return []
        found = (STEP.fullmatch(path.name) for path in self.path.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def of(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self.path / f"step {step}"

    def unfinished(self, step: int) -> Path:
        """Where it is while it is written."""
        return self.path / f"step {step}.unfinished"

    def commit(self, step: int):
        """Give the unfinished checkpoint of a step its name; what had that is moved aside."""
        if self.of(step).exists():
            self.of(step).rename(self._beside(step))
        self.unfinished(step).rename(self.of(step))
        sync_folder(self.path)

    def discard(self, step: int):
        """Remove the unfinished checkpoint of a step, which failed."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self.unfinished(step))

    def prune(self, oldest: int):
        """Remove the checkpoints of steps before `oldest`."""
        for step in self.steps():
            if step < oldest:
                removed = self.path / f"step {step}.removed"  # half of one is none
                self.of(step).rename(removed)
                shutil.rmtree(removed)

    def _beside(self, step) -> Path:
        number = 1
        while (path := self.path / f"step {step}.aside {number}").exists():
            number += 1
        return path
