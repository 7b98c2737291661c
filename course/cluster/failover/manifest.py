"""What a checkpoint is: of which step, ranks and model, and which files it is made of.

The manifest is written last, so a checkpoint that has one was whole; what has become of its files
since then their digests tell.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from course.parallel.whole_files import Digest, digest_of, sync_folder

FORMAT = 1
NAME = "manifest.json"


class Manifest(NamedTuple):
    """`parts` {name of a part: {rank: lines that describe it there}}, those of a rank that is not
    named are rank 0's; `files` {name: its Digest}.  Ranks are texts, as JSON has them."""

    step: int
    ranks: int
    parts: dict
    files: dict
    format: int = FORMAT

    def write(self, folder):
        """Let `folder` have it, at once or not at all."""
        unfinished = Path(folder, NAME + ".unfinished")
        with open(unfinished, "w") as file:
            json.dump(self._asdict() | {"sha256": _seal(self._asdict())}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, Path(folder, NAME))
        sync_folder(folder)

    @classmethod
    def read(cls, folder):
        """That of `folder`.  Raises ValueError where there is none that is whole, or of another
        format."""
        try:
            told = json.loads(Path(folder, NAME).read_text())
        except FileNotFoundError:
            raise ValueError(f"{folder} has no {NAME}") from None
        except ValueError:
            told = None
        if isinstance(told, dict) and told.get("format") not in (None, FORMAT):
            theirs = told["format"]
            raise OtherFormat(f"{folder} is of format {theirs!r}, and what reads it of {FORMAT}")
        if not isinstance(told, dict) or told.pop("sha256", None) != _seal(told):
            raise ValueError(f"{folder} has a {NAME} that is cut short or was changed")
        files = {name: Digest(*digest) for name, digest in told["files"].items()}
        return cls(**told | {"files": files})

    def damage(self, folder, names) -> str:
        """What is wrong with the files `names` in `folder`, in a sentence; nothing if they are what
        was written."""
        for name in names:
            path, wanted = Path(folder, name), self.files[name]
            if not path.exists():
                return f"{folder} lacks {name}"
            if (nbytes := path.stat().st_size) != wanted.nbytes:
                return f"{path} has {nbytes} bytes, and {wanted.nbytes} were written"
            if digest_of(path) != wanted:
                return f"{path} has other bytes than were written"
        return ""

    def difference(self, folder, parts, rank: int) -> str:
        """How the checkpoint in `folder` is of another training than one with `parts` {name: lines}
        on this rank; nothing if it is not."""
        if self.parts.keys() != parts.keys():
            return (
                f"{folder} has the parts {_listed(self.parts)}, and this training {_listed(parts)}"
            )
        for name, lines in parts.items():
            theirs = self.parts[name].get(str(rank), self.parts[name]["0"])
            for mine, other in zip([*lines, "nothing"], [*theirs, "nothing"]):
                if mine != other:
                    return f"{folder} has in {name} {other}, where this training has {mine}"
        return ""


class OtherFormat(ValueError):
    """A checkpoint of another version of this package."""


def by_rank(told) -> dict:
    """A manifest's `parts`, from those of each rank [{name: lines}, ...]; names are the same."""
    first, *others = told
    return {name: {"0": lines} | {str(rank): parts[name] for rank, parts in enumerate(others, 1)
                                  if parts[name] != lines}
            for name, lines in first.items()}  # fmt: skip


def _seal(told) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _listed(names) -> str:
    return ", ".join(sorted(names)) or "none"
