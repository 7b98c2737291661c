"""The folder of a training's checkpoints: one folder each, that gets its name once it is whole.

Nothing is written over: what has a name already, since it is damaged, is moved aside, and only what
is older than the last ones is removed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import threading
from pathlib import Path

from course.parallel.whole_files import sync_folder

STEP = re.compile(r"step (\d+)")
UNFINISHED = re.compile(r"step \d+\.(unfinished|removed)")
TRAINING = "training"


class CheckpointFolder:
    """`path`, which all ranks see."""

    def __init__(self, path):
        self.path, self.descriptor = Path(path).absolute(), None
        self.holders, self.changing = set(), threading.Lock()

    def lock(self):
        """Make it this process's own until `unlock`, or its end; remove what was never finished.

        Raises ValueError where another training has it, or a save of one that broke off.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(self.path, os.O_RDONLY)
        self.hold(TRAINING)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_unfinished()
        except BlockingIOError:
            self._close()
            raise ValueError(f"{self.path} is in use by another training") from None
        except OSError:
            self.unlock()
            raise

    def hold(self, holder):
        """Keep it, if it is locked, until `holder` has let it go too."""
        self.holders.add(holder)

    def unlock(self, holder=TRAINING):
        """Let others have it, if nobody else holds it."""
        with self.changing:
            self.holders.discard(holder)
            if not self.holders and self.descriptor is not None:
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # for processes forked meanwhile, too
                self._close()

    def _close(self):
        os.close(self.descriptor)
        self.descriptor = None
        self.holders.clear()

    def _remove_unfinished(self):
        for path in self.path.iterdir():
            if UNFINISHED.fullmatch(path.name) and path.is_dir():
                _remove(path)

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
                _remove(removed)

    def _beside(self, step) -> Path:
        number = 1
        while (path := self.path / f"step {step}.aside {number}").exists():
            number += 1
        return path


def _remove(path):
    """Remove a folder, of a link to one only the link."""
    path.unlink() if path.is_symlink() else shutil.rmtree(path)
