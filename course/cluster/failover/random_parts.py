"""The random numbers of a training: those that every rank will draw next."""

import hashlib
import random

import numpy
import torch


class RandomNumbers:
    """Of every rank: torch's (on its GPU too), numpy's and Python's, and those of `generators`, if
    any: torch.Generator, numpy.random.Generator, random.Random.

    More ranks than have saved get new ones, that nobody else has.
    """

    def __init__(self, *generators):
        self.generators = generators
        for generator in generators:
            _handling(generator)

    def describe(self):
        own = (type(getattr(g, "bit_generator", g)).__name__ for g in self.generators)
        return [", ".join(["torch, numpy, random", *own])]

    def shared(self):
        return None

    def own(self):
        state = {"torch": torch.get_rng_state(), "python": random.getstate()}
        state |= {"numpy": numpy.random.get_state(legacy=False)}  # noqa: NPY002 (the global one)
        if torch.cuda.is_initialized():
            state |= {"cuda": torch.cuda.get_rng_state()}
        return state | {"own": [_handling(g)[0](g) for g in self.generators]}

    def load(self, shared, owns, rank, size):
        if rank >= len(owns):
            return self._seed(_fresh_seed(owns[rank % len(owns)]["torch"], rank))
        mine = owns[rank]
        torch.set_rng_state(mine["torch"])
        random.setstate(mine["python"])
        numpy.random.set_state(_as_numpy(mine["numpy"]))  # noqa: NPY002
        if "cuda" in mine and torch.cuda.is_available():
            torch.cuda.set_rng_state(mine["cuda"])
        for generator, state in zip(self.generators, mine["own"]):
            _handling(generator)[1](generator, state)

    def _seed(self, seed):
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)  # noqa: NPY002
        for number, generator in enumerate(self.generators, 1):
            _handling(generator)[2](generator, seed + number)


def _fresh_seed(state, rank) -> int:
    told = hashlib.sha256(state.numpy().tobytes() + rank.to_bytes(8))
    return int.from_bytes(told.digest()[:7])


def _as_numpy(state):
    """What numpy saved, with arrays where the checkpoint has tensors."""
    if isinstance(state, dict):
        return {key: _as_numpy(value) for key, value in state.items()}
    return state.numpy() if isinstance(state, torch.Tensor) else state


def _set_numpy(generator, state):
    generator.bit_generator.state = _as_numpy(state)


def _seed_numpy(generator, seed):
    generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _set_torch(generator, state):
    generator.set_state(state)


HANDLINGS = {  # how to read, to set and to seed a generator
    torch.Generator: (torch.Generator.get_state, _set_torch, torch.Generator.manual_seed),
    numpy.random.Generator: (lambda g: g.bit_generator.state, _set_numpy, _seed_numpy),
    random.Random: (random.Random.getstate, random.Random.setstate, random.Random.seed),
}


def _handling(generator):
    for kind, handling in HANDLINGS.items():
        if isinstance(generator, kind):
            return handling
    told = ", ".join(f"{kind.__module__}.{kind.__name__}" for kind in HANDLINGS)
    raise ValueError(f"random numbers come from one of {told}, not from {generator!r}")
