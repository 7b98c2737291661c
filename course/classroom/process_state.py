"""What a call may change in this process, put back after it: `with kept(): ...`.

That is the settings of torch, numpy and Python, random numbers, folder and environment, and
functions of these libraries that were replaced by others.  What it prints is bounded.
"""

import builtins
import math
import os
import random
import sys
import time
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress

import numpy
import torch

from course.classroom.limits import Bounded


def folder() -> str:
    """The working directory; nothing if it has been removed."""
    with suppress(OSError):
        return os.getcwd()
    return ""


def change_folder(path: str):
    """Go back to a working folder, if it is still there."""
    with suppress(OSError):
        os.chdir(path)


def set_environment(variables: dict):
    """Make these the environment's variables, and no others."""
    os.environ.clear()
    os.environ.update(variables)


def set_default_device(device: torch.device):
    """Let torch make tensors there; on the CPU without a mode of its own."""
    torch.set_default_device(None if device.type == "cpu" else device)


SETTINGS = (  # how to read one, how to write it
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, set_default_device),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (numpy.geterr, lambda actions: numpy.seterr(**actions)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.path.copy, lambda folders: sys.path.__setitem__(slice(None), folders)),
    (lambda: dict(os.environ), set_environment),
    (folder, change_folder),
)
GENERATORS = (
    (torch.get_rng_state, torch.set_rng_state),
    (numpy.random.get_state, numpy.random.set_state),
    (random.getstate, random.setstate),
)
PLACES = (builtins, math, numpy, random, time, torch, torch.Tensor, torch.nn, torch.nn.functional)


@contextmanager
def kept():
    """Put everything back in the end, however that comes."""
    settings = [(get, put, get()) for get, put in SETTINGS]
    generators = [(put, get()) for get, put in GENERATORS]
    names = [(place, public(place)) for place in PLACES]
    out, err = redirect_stdout(Bounded(sys.stdout)), redirect_stderr(Bounded(sys.stderr))
    with warnings.catch_warnings(), out, err:
        try:
            yield
        finally:
            for place, before in names:
                put_back(place, before)
            for get, put, before in settings:
                if get() != before:
                    put(before)
            for put, before in generators:
                put(before)


def public(place) -> dict:
    """What a module or a class defines, but for what begins with an underscore."""
    return {name: value for name, value in vars(place).items() if not name.startswith("_")}


def put_back(place, before: dict):
    """Undo what was replaced, removed or hidden; what was added, as by an import, stays."""
    now = public(place)
    for name, value in before.items():
        if now.get(name) is not value:
            setattr(place, name, value)
    for name in now.keys() - before.keys():
        if any(name in vars(base) for base in getattr(place, "__mro__", ())[1:]):
            delattr(place, name)
