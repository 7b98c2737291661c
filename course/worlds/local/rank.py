"""The life of a rank: connect, call the function, report, wait to be released."""

import contextlib
import os
import pickle
import random
import signal
import sys
import traceback

import cloudpickle
import numpy
import torch

from course.worlds.local import fork_server
from course.worlds.pickling import Failure, pack_result

LENGTH_BYTES = 8


def live(rank, control, fds, job):
    """Run `job` as `rank`, who joins the others by the open files `fds`."""
    prepare(rank, job)
    report = Reporter(control)
    report("started", os.getpid())
    signal.signal(signal.SIGUSR1, lambda _, frame: report("stack", whereabouts(frame)))
    comm = None
    try:
        join, _, world = cloudpickle.loads(job["world"])
        comm = join(rank, fds, **world)
        fn, args, kwargs = cloudpickle.loads(job["call"])
        value = pack_result(rank, fn(comm, *args, **kwargs))
        comm.finish()
        message = "result", (value, comm.events)
    except BaseException as error:  # a rank that calls sys.exit() has failed too
        message = "failure", (Failure.of(rank, error), comm.events if comm else [])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    report(*message)
    if message[0] == "result":
        control.recv(1)  # peers may still read what this rank has sent
    elif comm:
        comm.abort()
    os._exit(0)


def prepare(rank, job):
    """Give a fresh rank its share of the cores, its random seeds and line-wise output."""
    torch.set_num_threads(job["threads"])
    for seed in (torch.manual_seed, numpy.random.seed, random.seed):
        seed(rank)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)


def whereabouts(frame):
    """The learner's part of a stack, as plain tuples (file, line, function)."""
    ours = __file__, fork_server.__file__
    stack = traceback.extract_stack(frame)
    return [(f.filename, f.lineno, f.name) for f in stack if f.filename not in ours]


class Reporter:
    """Sends (kind, value) pairs to the launcher."""

    def __init__(self, line):
        self.line = line

    def __call__(self, kind, value):
        body = pickle.dumps((kind, value))
        with contextlib.suppress(OSError):  # the launcher is gone, and this rank soon will be
            self.line.sendall(len(body).to_bytes(LENGTH_BYTES, "little") + body)
