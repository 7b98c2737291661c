"""What travels between the notebook and its ranks: functions, results, failures."""

import inspect
import io
import os
import time
import traceback
from typing import NamedTuple

import cloudpickle

from course.comm import errors
from course.comm.errors import CommError, CommMismatch, CommTimeout, PeerLost

WORLDS = os.path.dirname(__file__)
RANK = os.path.join(WORLDS, "local", "rank.py")
# Frames of these folders say nothing to whoever called them wrongly.
OURS = WORLDS + os.sep, os.path.dirname(errors.__file__) + os.sep
CONSEQUENCES = (CommMismatch, CommTimeout, PeerLost)  # the further back, the likelier of another


class Failure(NamedTuple):
    """How a rank failed: `trace` is a TracebackException without source lines, which the launcher
    adds (only it has the text of notebook cells); `exception` is None if it cannot travel."""

    rank: int
    when: float
    order: int  # of causes: what the program did, ranks that disagree, time-outs, lost peers
    sentence: str
    trace: bytes = None
    exception: bytes = None

    @classmethod
    def of(cls, rank: int, error: BaseException):
        """The failure of a rank that `error` ended."""
        trace = traceback.TracebackException.from_exception(error, lookup_lines=False)
        inside = OURS if isinstance(error, CommError) else RANK
        trace.stack[:] = [f for f in trace.stack if not f.filename.startswith(inside)]
        order = next((n for n, kind in enumerate(CONSEQUENCES, 1) if isinstance(error, kind)), 0)
        sentence = f"{type(error).__name__}: {_text(error)}"
        return cls(rank, time.monotonic(), order, sentence, *(_or_none(x) for x in (trace, error)))

    def stack(self) -> list:
        """Where it was raised, outermost first, as (file, line, function)."""
        frames = [] if self.trace is None else unpack(self.trace).stack
        return [(frame.filename, frame.lineno, frame.name) for frame in frames]

    def text(self) -> str:
        """Its traceback, source lines of cells included; the sentence alone if there is none."""
        if self.trace is None:
            return self.sentence
        return "".join(unpack(self.trace).format()).rstrip()


def _text(error) -> str:
    """What an exception says; a learner's own class may fail to."""
    try:
        return str(error)
    except Exception as failure:
        return f"(no text: its __str__ raises {type(failure).__name__})"


def _or_none(thing):
    try:
        data = cloudpickle.dumps(thing)
        cloudpickle.loads(data)
    except Exception:  # whatever a learner's class may raise
        return None
    return data


def unpack(data: bytes):
    """What `pack`, `pack_result` or a failure made into bytes; None stays None."""
    return None if data is None else cloudpickle.loads(data)


def pack(fn, args, kwargs) -> bytes:
    """A call as bytes.  Raises ValueError that says which object cannot be sent to the ranks."""
    if not callable(fn):
        kind = type(fn).__name__
        raise ValueError(f"what runs on the ranks must be a function, not {kind} {fn!r:.40}")
    try:
        return cloudpickle.dumps((fn, args, kwargs))
    except Exception as error:  # pickling runs any object's own code
        name, culprit = _culprit(fn, args, kwargs)
        kind = type(culprit).__name__
        message = f"{name}, a {kind}, cannot be sent to the ranks: {error}"
        raise ValueError(message) from None


def _culprit(fn, args, kwargs):
    """The name and value of the innermost thing that cannot be pickled."""
    called = getattr(fn, "__name__", type(fn).__name__)
    parts = {f"argument {i} of {called}": value for i, value in enumerate(args)}
    parts |= {f"argument {key!r} of {called}": value for key, value in kwargs.items()}
    if inspect.isfunction(fn):
        outside = inspect.getclosurevars(fn)
        for key, value in {**outside.globals, **outside.nonlocals}.items():
            parts[f"{key!r}, which {called} uses"] = value
    for name, value in parts.items():
        if not _ships(value):
            return name, value
    return f"the function {called!r}", fn


def _ships(value) -> bool:
    try:
        cloudpickle.dump(value, io.BytesIO())
    except Exception:
        return False
    return True


def pack_result(rank: int, value) -> bytes:
    """A return value as bytes.  Raises ValueError that says what cannot be sent back."""
    try:
        return cloudpickle.dumps(value)
    except Exception as error:  # pickling runs any object's own code
        what = f"rank {rank} returned a {type(value).__name__}"
        raise ValueError(f"{what}, which cannot be sent back: {error}") from None
