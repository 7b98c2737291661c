"""What travels between the notebook and its ranks: functions, results, failures."""

import copyreg
import importlib
import inspect
import io
import os
import time
import traceback
from typing import NamedTuple

import cloudpickle
import torch

from course.comm import errors
from course.comm.errors import CommError, CommMismatch, CommTimeout, PeerLost

WORLDS = os.path.dirname(__file__)
RANK = os.path.join(WORLDS, "local", "rank.py")
# Frames of these folders say nothing to whoever called them wrongly.
OURS = WORLDS + os.sep, os.path.dirname(errors.__file__) + os.sep
SENTENCE_CHARACTERS, TRACEBACK_CHARACTERS = 2_000, 20_000  # that are shown
CONSEQUENCES = (CommMismatch, CommTimeout, PeerLost)  # the further back, the likelier of another

# `classes` and `ops` are common names.  To a function that uses one of them and torch, cloudpickle
# adds torch.classes or torch.ops, which are modules of types that it does not know.
for module in (torch.classes, torch.ops):
    copyreg.pickle(type(module), lambda module: (importlib.import_module, (module.__name__,)))


def places(walked) -> list[tuple]:
    """(file, line, function) of each (frame, line) of traceback's `walk_tb` or `walk_stack`."""
    codes = [(frame.f_code, line) for frame, line in walked]  # a signal may come where no line is
    return [(code.co_filename, line or code.co_firstlineno, code.co_name) for code, line in codes]


class Failure(NamedTuple):
    """How a rank failed: `trace` is a TracebackException without source lines, which the launcher
    adds (only it has the text of notebook cells); `exception` is None if it cannot travel."""

    rank: int
    when: float  # seconds since 1970, which the ranks of several machines can compare
    severity: int  # of causes: what the program did, ranks that disagree, time-outs, lost peers
    sentence: str
    stack: tuple = ()  # where it was raised, outermost first, as (file, line, function)
    trace: bytes = None
    exception: bytes = None

    @classmethod
    def of(cls, rank: int, error: BaseException):
        """The failure of a rank that `error` ended."""
        trace = traceback.TracebackException.from_exception(error, lookup_lines=False)
        inside = OURS if isinstance(error, CommError) else RANK
        trace.stack[:] = [f for f in trace.stack if not f.filename.startswith(inside)]
        raised = places(traceback.walk_tb(error.__traceback__))
        stack = tuple(place for place in raised if not place[0].startswith(inside))
        severity = next((n for n, kind in enumerate(CONSEQUENCES, 1) if isinstance(error, kind)), 0)
        sentence = shortened(f"{type(error).__name__}: {trace}", SENTENCE_CHARACTERS)
        _name_classes(trace)
        packed = (_or_none(thing) for thing in (trace, error))
        return cls(rank, time.time(), severity, sentence, stack, *packed)

    def text(self) -> str:
        """Its traceback, source lines of cells included; the sentence alone if there is none."""
        trace = unpack_or_none(self.trace)
        text = self.sentence if trace is None else "".join(trace.format()).rstrip()
        return shortened(text, TRACEBACK_CHARACTERS)


def shortened(text: str, most: int) -> str:
    """A text without its middle if it has more than `most` characters."""
    half, left_out = most // 2, len(text) - most
    if left_out <= 0:
        return text
    return f"{text[:half]} … {left_out} characters left out … {text[-half:]}"


def _name_classes(trace):
    """Put the names of exceptions' classes in their place, in a trace and in all that caused it:
    the launcher may not be able to import them."""
    kind = trace.exc_type
    if kind and kind.__module__ != "builtins":
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        trace.exc_type = type(kind.__name__, (), names)
    for cause in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        if cause:
            _name_classes(cause)


def _or_none(thing):
    try:
        data = cloudpickle.dumps(thing)
        cloudpickle.loads(data)
    except BaseException:  # whatever a learner's class may raise, to leave included
        return None
    return data


def unpack(data: bytes):
    """What `pack` or `pack_result` made into bytes.  Raises ValueError if it cannot be had here,
    whatever the object's own code raises."""
    try:
        return cloudpickle.loads(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        message = f"cannot be unpacked here: {type(error).__name__}: {error}"
        raise ValueError(shortened(message, SENTENCE_CHARACTERS)) from error


def unpack_or_none(data: bytes):
    """What a failure made into bytes; None if that is nothing, or cannot be had here."""
    try:
        return data and unpack(data)
    except ValueError:
        return None


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
        used = {**outside.globals, **outside.nonlocals}
        parts |= {f"{key!r}, which {called} uses": value for key, value in used.items()}
    held_back = (part for part in parts.items() if not _ships(part[1]))
    return next(held_back, (f"the function {called!r}", fn))


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
