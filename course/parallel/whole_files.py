"""Files that are whole or not there: written beside their name, and renamed when the disk has them.

What they hold is torch's own format.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import torch

PIECE_BYTES = 1 << 22


class Digest(NamedTuple):
    """What tells a file from another, or from a part of it."""

    nbytes: int
    sha256: str


class _Hashed:
    """A file, as torch writes one, that reckons the digest as it goes."""

    def __init__(self, file):
        self.file, self.digest, self.nbytes, self.error = file, hashlib.sha256(), 0, None

    def write(self, data):
        try:
            written = self.file.write(data)
        except OSError as error:
            self.error = error  # torch has another one for it, which says less
            raise
        self.digest.update(data)
        self.nbytes += written
        return written

    def flush(self):
        self.file.flush()


def save_whole(state, path) -> Digest:
    """Save `state` as the file `path`, in place of what was there, once the disk has all of it.

    Raises OSError if it cannot, and leaves what was there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    try:
        with open(unfinished, "wb") as file:
            hashed = _Hashed(file)
            try:
                torch.save(state, hashed)
            except RuntimeError:
                raise hashed.error or OSError(f"{path} could not be written") from None
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # its room may be all that there is
        raise
    sync_folder(path.parent)
    return Digest(hashed.nbytes, hashed.digest.hexdigest())


def digest_of(path) -> Digest:
    """The digest of the file `path`, read once from one end to the other."""
    digest, nbytes = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            nbytes += len(piece)
    return Digest(nbytes, digest.hexdigest())


def sync_folder(folder):
    """Let the disk have the names in `folder` as they are now."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
