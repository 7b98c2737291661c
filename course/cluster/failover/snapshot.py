"""Copies of states that change: what training goes on from and what is written are two things."""

import contextlib

import numpy
import torch

PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)


class Snapshot:
    """Copies states into memory of its own on the CPU, which it keeps from one time to the next:
    fresh memory costs several times what copying does."""

    def __init__(self):
        self.memory = {}

    def of(self, state, *place):
        """A copy of `state`: tensors and numbers, texts and bytes, in dictionaries, lists and
        tuples.

        `place`: the words that say where it stands.  Raises ValueError for anything else, which
        could not be read back.
        """
        kind = type(state)
        if isinstance(state, torch.Tensor):
            return self._copy(state.detach(), place)
        if isinstance(state, dict):
            return {self.of(key, *place): self.of(value, *place, key)
                    for key, value in state.items()}  # fmt: skip
        if isinstance(state, list | tuple):
            copies = [self.of(value, *place, number) for number, value in enumerate(state)]
            return copies if isinstance(state, list) else tuple(copies)
        if isinstance(state, numpy.ndarray) and state.dtype.kind in "biufc":
            native = state.astype(state.dtype.newbyteorder("="))
            return self._copy(torch.from_numpy(native), place)
        if isinstance(state, numpy.bool | numpy.integer | numpy.floating | numpy.str_):
            state = state.item()
        if type(state) not in PLAIN:
            where = ", ".join(map(str, place))
            raise ValueError(
                f"a checkpoint holds tensors, numbers and texts, and {where} is a {kind.__name__}"
            )
        return state

    def _copy(self, x, place):
        if x.layout is not torch.strided:
            return x.cpu().clone()
        memory = self.memory.get(place)
        if memory is None or (memory.dtype, memory.shape) != (x.dtype, x.shape):
            memory = torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=x.is_cuda)
            self.memory[place] = memory
        return memory.copy_(x, non_blocking=x.is_cuda)


@contextlib.contextmanager
def copying():
    """What is copied within is there at the end, by one thread: where cores are shared several wait
    for one another, four times as long in all."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    finally:
        torch.set_num_threads(threads)
