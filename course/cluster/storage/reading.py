"""How fast this machine reads samples: really measured, with the page cache or without it."""

import os
import time
from typing import NamedTuple


class Reading(NamedTuple):
    """So many samples and bytes in so many seconds."""

    samples: int
    nbytes: int
    seconds: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.nbytes / self.seconds


def read_timed(source, numbers, *, decode=None, cold: bool = False) -> Reading:
    """Read these samples of `source`, one after another, and `decode(name, bytes)` each if given.

    `cold`: first the kernel forgets what it keeps of the files.  What a disk or a host below this
    machine keeps for itself is not forgotten.
    """
    if cold:
        drop_cached(source.paths)
    nbytes, start = 0, time.perf_counter()
    for number in numbers:
        data = source.read(number)
        nbytes += len(data)
        if decode:
            decode(source.names[number], data)
    return Reading(len(numbers), nbytes, time.perf_counter() - start)


def drop_cached(paths):
    """Ask the kernel to forget the pages of these files, so that the disk is read again.

    Needs no rights; where files are in memory themselves (tmpfs) nothing happens.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are not on the disk yet are not forgotten
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
