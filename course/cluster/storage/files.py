"""Samples that are files: one open, and so one question to the file system, for each."""

from pathlib import Path


class Files:
    """The files below `folder` that match `pattern`, in the order of their names.

    A source of samples: `names`, `paths` of what is read, `groups` [samples that lie together],
    and `read(number)`.  Raises FileNotFoundError where there are none.
    """

    def __init__(self, folder, pattern="*"):
        self.folder = Path(folder)
        self.paths = sorted(path for path in self.folder.rglob(pattern) if path.is_file())
        if not self.paths:
            raise FileNotFoundError(f"{folder} must hold files {pattern}, and holds none")
        self.names = [path.relative_to(folder).as_posix() for path in self.paths]
        self.groups = [len(self.paths)]

    def __len__(self):
        return len(self.paths)

    def read(self, number: int) -> bytes:
        """The bytes of one sample.  Raises OSError, a sentence, where they cannot be read."""
        try:
            return self.paths[number].read_bytes()
        except OSError as error:
            raise type(error)(
                f"{self.paths[number]} was there when its folder was listed, and cannot be read "
                f"now: {error.strerror}"
            ) from error
