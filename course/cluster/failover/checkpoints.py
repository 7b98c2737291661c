"""Checkpoints of a training on many ranks: saved beside it, found again when it is lost."""

import functools
import json
import warnings

import torch

from course.cluster.failover.folder import CheckpointFolder
from course.cluster.failover.manifest import Manifest, OtherFormat
from course.cluster.failover.parts import Owns
from course.cluster.failover.snapshot import Snapshot, copying
from course.cluster.failover.writing import SHARED, Writing, own_file
from course.comm.counts import required_count


class Checkpoints:
    """Those in `folder`, which all ranks of `comm` see and no other training uses; one `every` so
    many steps, of which the last `keep` stay.

    `asynchronous`: a save returns when the state is copied, and is written while training goes on;
    it then needs the memory of a copy, and waits for the save before it.  Otherwise it returns when
    the checkpoint is whole.  A rank waits for another's files as long as the run's time-out has it.
    Use it in `with`, or call `close`.
    Collective, as are all its methods.  Raises ValueError for a folder that is in use.
    """

    def __init__(self, comm, folder, *, every: int, keep: int = 2, asynchronous: bool = True):
        self.every = required_count(every, "the number of steps between checkpoints", comm.rank)
        self.keep = required_count(keep, "the number of checkpoints that stay", comm.rank)
        self.comm = comm.split(0)  # messages of its own, beside those of the training
        self.folder, self.asynchronous = CheckpointFolder(folder), asynchronous
        self.snapshot, self.saving, self.whole = Snapshot(), None, []
        self.closed, self.found = False, self._open()

    def due(self, step: int) -> bool:
        """Whether the end of this step is a time to save."""
        return step % self.every == 0

    def restore(self, parts: dict, *, other_ranks: bool = False) -> int:
        """Make `parts` {name: part} what the newest whole checkpoint says; the step that it is of,
        0 if there is none.  Warns of newer ones that are damaged.

        Cost: every file is read once to be checked, beside what is loaded.  Raises ValueError,
        with nothing changed, for a checkpoint of another training, format, or, unless
        `other_ranks`, number of ranks, and where all are damaged.
        """
        self.finish()
        self.found = json.loads(self.comm.gather_texts(json.dumps(self.folder.steps()))[0])
        lines, damage = _described(parts), ""
        for step in reversed(self.found):
            damage = self._damage(step, lines, other_ranks)
            if not damage:
                self._load(step, parts)
                self.whole = [found for found in self.found if found <= step][-self.keep :]
                return step
            if self.comm.rank == 0:
                warnings.warn(f"a checkpoint is passed over: {damage}", stacklevel=2)
        if damage:
            raise ValueError(f"no checkpoint in {self.folder.path} is whole: {damage}")
        return 0

    def save(self, step: int, parts: dict):
        """Save `parts` {name: part} as they are after `step` steps.

        Raises ValueError for a step that is none or not behind the last, for what cannot be saved,
        after `close`, and where there are checkpoints that this training did not begin with;
        OSError, of this save or of the one before it, on all ranks, where one could not write.
        """
        if self.closed:
            raise ValueError(f"rank {self.comm.rank}: the checkpoints of this training are closed")
        self.finish()
        step = required_count(step, "the step of a checkpoint", self.comm.rank, least=0)
        if self.found and not self.whole:
            raise ValueError(
                f"{self.folder.path} has checkpoints up to step {self.found[-1]} that this "
                "training did not begin with: restore, or save in an empty folder"
            )
        if self.whole and step <= self.whole[-1]:
            raise ValueError(f"step {step} cannot be saved after step {self.whole[-1]}")
        with copying():
            files = self._files(parts)
        oldest = [*self.whole, step][-self.keep :][0]
        writing = Writing(self.folder, step, files, _described(parts), oldest)
        self.folder.hold(step)
        self.saving = step, self.comm.submit(_write, writing)
        if not self.asynchronous:
            self.finish()

    def finish(self):
        """Wait until the last save is whole.  Raises OSError where a rank could not write it."""
        if self.saving:
            (step, future), self.saving = self.saving, None
            future.wait()
            self.whole = [*self.whole, step][-self.keep :]

    def close(self):
        """Wait for the last save, and let others have the folder."""
        try:
            self.finish()
        finally:
            self._leave()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:  # whoever is lost is not waited for; a save that is written keeps the folder
            self._leave()

    def _leave(self):
        self.closed = True
        self.folder.unlock()

    def _open(self) -> list:
        """The steps that there are in the folder, now rank 0's own."""
        found, problem = [], ""
        if self.comm.rank == 0:
            try:
                self.folder.lock()
                found = self.folder.steps()
            except (OSError, ValueError) as error:
                problem = str(error)
        found, problem = json.loads(self.comm.gather_texts(json.dumps([found, problem]))[0])
        if problem:
            raise ValueError(f"rank {self.comm.rank}: no checkpoints: {problem}")
        return found

    def _files(self, parts) -> dict:
        """{name: a copy of the state} of the files that this rank writes."""
        shared, own = {}, {}
        for name, part in parts.items():
            shared[name], own[name] = part.shared(), part.own()
        files = {own_file(self.comm.rank): own}
        if self.comm.rank == 0:
            files[SHARED] = shared
        return {name: self.snapshot.of(state, name) for name, state in files.items()}

    def _damage(self, step, lines, other_ranks) -> str:
        """What is wrong with a checkpoint's files; each rank looks at some.  Raises ValueError on
        all ranks where it is of another training."""
        kind, sentence = self._looked_at(step, lines, other_ranks)
        told = [json.loads(text) for text in self.comm.gather_texts(json.dumps([kind, sentence]))]
        for kind, sentence in sorted(told, reverse=True):
            if kind == "refused":
                raise ValueError(sentence)
            if sentence:
                return sentence
        return ""

    def _looked_at(self, step, lines, other_ranks) -> tuple[str, str]:
        place, comm = self.folder.of(step), self.comm
        try:
            manifest = Manifest.read(place)
        except OtherFormat as error:
            return "refused", str(error)
        except (OSError, ValueError) as error:
            return "damaged", str(error)
        if manifest.ranks != comm.size and not other_ranks:
            return "refused", (
                f"{place} was saved by {manifest.ranks} ranks, and there are {comm.size}: "
                "other_ranks=True goes on from it"
            )
        if difference := manifest.difference(place, lines, comm.rank):
            return "refused", difference
        mine = sorted(manifest.files)[comm.rank :: comm.size]
        return "damaged", manifest.damage(place, mine)

    def _load(self, step, parts):
        place, ranks = self.folder.of(step), Manifest.read(self.folder.of(step)).ranks
        shared = _read(place / SHARED)

        @functools.cache
        def own(rank):
            return _read(place / own_file(rank), mmap=rank != self.comm.rank)

        for name, part in parts.items():
            part.load(shared[name], Owns(own, name, ranks), self.comm.rank, self.comm.size)


def _described(parts) -> dict:
    for name in parts:
        if not isinstance(name, str):
            raise ValueError(f"the name of a part is a text, not {name!r}")
    return {name: part.describe() for name, part in parts.items()}


def _read(path, mmap=False):
    return torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)


def _write(comm, writing):
    writing.write(comm)
