"""Writing a checkpoint: every rank its files, then one of them the manifest and the name.

It is whole when it has its name; until then the one before it is the last.
"""

import json
import os
from typing import NamedTuple

from course.cluster.failover.folder import CheckpointFolder
from course.cluster.failover.manifest import Manifest, by_rank
from course.parallel.whole_files import save_whole

SHARED = "shared.pt"


def own_file(rank: int) -> str:
    """The file of what a rank has for itself."""
    return f"rank {rank}.pt"


class Writing(NamedTuple):
    """The checkpoint of a `step`: what this rank writes, `files` {name: state}; `parts` {name:
    lines that describe it}; of the checkpoints before it those from step `oldest` on are kept."""

    folder: CheckpointFolder
    step: int
    files: dict
    parts: dict
    oldest: int

    def write(self, comm):
        """Collective.  Cost: two agreements, and the disk's time for the slowest rank's files, for
        which the others wait no longer than the run's time-out.  Lets the folder go.

        Raises OSError on all ranks where one could not write; nothing of it is left then.
        """
        try:
            self._write(comm)
        finally:
            self.folder.unlock(self.step)

    def _write(self, comm):
        digests, problem = {}, ""
        try:
            for name, state in self.files.items():
                digests[name] = save_whole(state, self.folder.unfinished(self.step) / name)
        except Exception as error:  # whatever it is, the others are to hear of it
            problem = f"rank {comm.rank} could not save step {self.step}: {error}"
        mine = [problem, self.step, self.parts, digests]
        told = [json.loads(text) for text in comm.gather_texts(json.dumps(mine))]
        problem = _first_problem(told)
        if comm.rank == 0 and not problem:
            problem = self._finish(comm.size, told)
        problem = json.loads(comm.gather_texts(json.dumps(problem))[0])
        if problem:
            if comm.rank == 0:
                self.folder.discard(self.step)
            raise OSError(problem)

    def _finish(self, ranks, told) -> str:
        """Name it, and remove what is too old; what went wrong, in a sentence."""
        files = {name: digest for *_, digests in told for name, digest in digests.items()}
        unfinished, parts = self.folder.unfinished(self.step), by_rank([mine[2] for mine in told])
        try:
            if lacking := files.keys() - set(os.listdir(unfinished)):
                told = f"{unfinished} lacks {min(lacking)}, and all ranks are to see one folder"
                return f"rank 0 could not save step {self.step}: {told}"
            Manifest(self.step, ranks, parts, files).write(unfinished)
            self.folder.commit(self.step)
            self.folder.prune(self.oldest)
        except OSError as error:
            return f"rank 0 could not save step {self.step}: {error}"
        return ""


def _first_problem(told) -> str:
    _, step, parts, _ = told[0]
    for rank, (problem, theirs, others, _) in enumerate(told):
        if problem:
            return problem
        if (theirs, others.keys()) != (step, parts.keys()):
            return (
                f"rank 0 saves step {step} of {', '.join(parts)}, rank {rank} step {theirs} of "
                f"{', '.join(others)}"
            )
    return ""
