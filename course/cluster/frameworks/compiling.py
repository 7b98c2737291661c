"""What torch.compile costs before it gains anything: the first call compiles, later ones do not.

On a CPU it writes C++, which takes a compiler.
"""

import os
import shutil
import statistics
import sys
import tempfile
from typing import NamedTuple

import torch

from course.worlds import run


class Calls(NamedTuple):
    """Seconds of one call: as it is, compiled the first time, and later (medians)."""

    eager_s: float
    first_s: float
    later_s: float

    def __str__(self):
        return (f"as it is {1e3 * self.eager_s:.1f} ms, the first compiled call {self.first_s:.0f} "
                f"s, later ones {1e3 * self.later_s:.1f} ms")  # fmt: skip

    @property
    def paid_after(self) -> float:
        """Calls after which compiling has saved what it took; infinite if it saves nothing."""
        saved = self.eager_s - self.later_s
        return (self.first_s - self.eager_s) / saved if saved > 0 else float("inf")


def gelu(x):
    """GELU, written out: operations that work number by number, one after another."""
    return 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x**3)))


def available() -> str | None:
    """None if this machine has the C++ compiler that torch would call, else a sentence."""
    usual = "clang++" if sys.platform == "darwin" else "g++"
    if shutil.which(os.environ.get("CXX", usual)):
        return None
    return "torch.compile writes C++, and this machine has no compiler for it"


def timed_calls(fn, *args, calls=20) -> Calls:
    """The Calls of `fn(*args)` in a fresh process, which finds nothing compiled.

    Takes some ten seconds of processor time, most of them the C++ compiler's.
    Raises RuntimeError where there is no C++ compiler.
    """
    if missing := available():
        raise RuntimeError(missing)
    with tempfile.TemporaryDirectory() as cache:
        (seconds,) = run(_called, 1, fn, args, calls, cache, timeout=None)
    return Calls(*seconds)


def _called(comm, fn, args, calls, cache) -> tuple:
    here = {"CACHE_DIR": cache, "COMPILE_THREADS": "1"}
    quicker = {"VEC_ISA_OK": "1"}  # what the processor says of its vectors is not tried out first
    os.environ |= {f"TORCHINDUCTOR_{name}": value for name, value in (here | quicker).items()}
    compiled = torch.compile(fn)

    def seconds(call):
        begin = comm.clock()
        call(*args)
        return comm.clock() - begin

    first = seconds(compiled)
    eager, later = (
        statistics.median(seconds(call) for _ in range(calls)) for call in (fn, compiled)
    )
    return eager, first, later
