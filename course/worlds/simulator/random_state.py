"""Random numbers of many ranks in one process: each draws from generators of its own.

Python's and numpy's module functions are bound to generators of the rank that calls them.  torch
has one generator for all: its state is exchanged when another rank draws, which the counter of
operations sees.
"""

import contextlib
import functools
import random

import numpy
import torch

SEEDING = ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state")

NUMPY_S_OWN = {"seed": "seed", "sample": "random_sample", "ranf": "random_sample"}  # no methods


class PerRankRandom:
    """The generators of the ranks of `simulation`; each begins with its number as seed."""

    def __init__(self, simulation):
        self.simulation, self.owner, self.states = simulation, None, {}
        self.of_python, self.of_numpy = {}, {}

    def switch(self):
        """Let torch's generator be that of the rank that is running; of nobody, the caller's."""
        rank = self.simulation.current_rank
        if rank != self.owner:
            generator = torch.default_generator
            self.states[self.owner] = generator.get_state()
            if rank in self.states:
                generator.set_state(self.states[rank])
            else:
                generator.manual_seed(rank)
            self.owner = rank

    @contextlib.contextmanager
    def isolated(self):
        """Every rank draws for itself; whoever called gets back what it had."""
        hidden_numpy = numpy.random.mtrand._rand
        replaced = _bound(random, random._inst, self._python)
        replaced += _bound(numpy.random, hidden_numpy, self._numpy)
        replaced += [(module, name, self._switching(getattr(module, name)))
                     for module in (torch, torch.random) for name in SEEDING]  # fmt: skip
        before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        for module, name, value in replaced:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)
            self.switch()

    def _python(self):
        rank = self.simulation.current_rank
        return _own(self.of_python, rank, random._inst, random.Random)

    def _numpy(self):
        hidden, rank = numpy.random.mtrand._rand, self.simulation.current_rank
        return _own(self.of_numpy, rank, hidden, numpy.random.RandomState)

    def _switching(self, function):
        @functools.wraps(function)
        def switched(*args, **kwargs):
            self.switch()
            return function(*args, **kwargs)

        return switched


def _own(generators, rank, callers, make):
    if rank is None:
        return callers
    if rank not in generators:
        generators[rank] = make(rank)
    return generators[rank]


def _bound(module, hidden, of_rank) -> list:
    """(module, name, replacement) of the functions that draw from a hidden generator."""

    def bound(method):
        return lambda *args, **kwargs: getattr(of_rank(), method)(*args, **kwargs)

    methods = {name: thing.__name__ for name, thing in vars(module).items()
               if getattr(thing, "__self__", None) is hidden}  # fmt: skip
    methods |= NUMPY_S_OWN if module is numpy.random else {}
    return [(module, name, bound(method)) for name, method in methods.items()]
