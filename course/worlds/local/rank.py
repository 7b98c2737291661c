"""The life of a rank: connect, call the function, report, wait to be released."""

import contextlib
import gc
import io
import itertools
import os
import pickle
import random
import signal
import sys
import traceback

import cloudpickle
import numpy.random  # numpy alone leaves it to whoever seeds it: to each rank, half of its start
import torch

from course.worlds.framing import send
from course.worlds.pickling import OURS, Failure, pack_result, places


def run_rank(rank, control, fds, job):
    """Run `job` as `rank`, who joins the others by the open files `fds`.

    A rank ends without the end of its interpreter, which may wait for threads: open files are
    written out, but functions given to `atexit` are not called.
    """
    report = Reporter(rank, control)
    report("started", os.getpid())
    signal.signal(signal.SIGUSR1, lambda _, frame: report("stack", user_stack(frame)))
    comm = None
    try:
        join, _, world = cloudpickle.loads(job["world"])
        comm = join(rank, fds, **world)
        prepare(rank, job)  # starts threads, and a process that has some may not enter a host
        fn, args, kwargs = cloudpickle.loads(job["call"])
        value = pack_result(rank, fn(comm, *args, **kwargs))
        comm.finish()
        message = "result", (pickle.PickleBuffer(value), comm.events)
    except BaseException as error:  # a rank that calls sys.exit() has failed too
        message = "failure", (Failure.of(rank, error), comm.events if comm else [])
    flush_files()
    report(*message)
    if message[0] == "result":
        control.recv(1)  # peers may still read what this rank has sent
    elif comm:
        comm.abort()
    os._exit(0)


OPEN_FILES = io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom


def flush_files():
    """Write what open files still hold, as the interpreter would do at its end: a rank has none."""
    for thing in [sys.stdout, sys.stderr, *gc.get_objects()]:
        if issubclass(type(thing), OPEN_FILES):  # isinstance would ask what a dead weak proxy is
            with contextlib.suppress(OSError, ValueError):
                thing.flush()


def prepare(rank, job):
    """Give a fresh rank its share of the cores, its random seeds and line-wise output."""
    torch.set_num_threads(job["threads"])
    for seed in (torch.manual_seed, numpy.random.seed, random.seed):
        seed(rank)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)


def user_stack(frame):
    """The learner's part of a stack, as plain tuples (file, line, function)."""
    called = itertools.dropwhile(_is_ours, reversed(places(traceback.walk_stack(frame))))
    return list(itertools.takewhile(lambda entry: not _is_ours(entry), called))


def _is_ours(entry):
    return entry[0].startswith(OURS)


class Reporter:
    """Sends (rank, kind, value) to the launcher; what a signal's handler says is left out while
    another is on its way."""

    def __init__(self, rank, control):
        self.rank, self.control, self.busy = rank, control, False

    def __call__(self, kind, value):
        if self.busy:
            return
        self.busy = True
        with contextlib.suppress(OSError):  # the launcher is gone, and this rank soon will be
            send(self.control, (self.rank, kind, value))
        self.busy = False
