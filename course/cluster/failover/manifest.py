"""What a checkpoint is: of which step, ranks and model, and which files it is made of.

The manifest is written last, so a checkpoint that has one was whole; what has become of its files
since then their digests tell.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

from course.parallel.whole_files import Digest, digest_of, sync_folder

FORMAT = 1
NAME = "manifest.json"


class Manifest(NamedTuple):
    """`parts` {name of a part: lines that describe it}, `files` {name: its Digest}."""

    step: int
    ranks: int
    parts: dict
    files: dict
    format: int = FORMAT

    def write(self, folder):
        """Let `folder` have it, at once or not at all."""
        unfinished = Path(folder, NAME + ".unfinished")
        with open(unfinished, "w") as file:
            json.dump(self._asdict(), file, indent=1)
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
        try:
            files = {name: Digest(*digest) for name, digest in told["files"].items()}
            return cls(**told | {"files": files})
        except (TypeError, KeyError):
            raise ValueError(f"{folder} has a {NAME} that is cut short, or no JSON") from None

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

    def difference(self, folder, parts) -> str:
        """How the checkpoint in `folder` is of another training than one of `parts`; nothing if it
        is not."""
        if self.parts.keys() != parts.keys():
            return f"{folder} has the parts {_listed(self.parts)}, and this training {_listed(parts)}"
        for name, lines in parts.items():
            theirs = self.parts[name]
            for mine, other in zip([*lines, "nothing"], [*theirs, "nothing"]):
                if mine != other:
                    return f"{folder} has in {name} {other}, where this training has {mine}"
        return ""


class OtherFormat(ValueError):
    """A checkpoint of another version of this package."""


def _listed(names) -> str:
    return ", ".join(sorted(names)) or "none"
