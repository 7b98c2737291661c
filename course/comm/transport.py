"""The contract of a world."""

from typing import NamedTuple

from course.comm.tensors import DTYPES, describe

NODE_MEMORY_BYTES = 8 << 20  # that a rank can write for the others of its node


class Envelope(NamedTuple):
    """What a message says of itself.  The first three fields pick the receive that it is for."""

    group: int = 0
    call: int = 0
    tag: int = 0
    dtype: int = 0
    nbytes: int = 0

    def __str__(self):
        dtype = DTYPES[self.dtype]
        return f"{describe(dtype, [self.nbytes // dtype.itemsize])}, tag {self.tag}"
