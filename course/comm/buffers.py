"""Buffers in flight: up to the `wait()` a tensor belongs to the message, or the call, it is for."""

import torch

from course.comm.tensors import describe


class BuffersInFlight:
    """The tensors that one rank's messages own until they are waited for."""

    def __init__(self, rank: int):
        self.rank, self.by_memory, self.versions = rank, {}, {}
        self.lent = {}  # memory -> [version, how many calls work there]

    def claim(self, handle):
        """Give a handle its tensor.  Raises ValueError if it lands where another is at work."""
        claimed = self.by_memory.setdefault(_memory(handle.tensor), [])
        for other in claimed:
            landing = "recv" in (handle.operation, other.operation)
            if landing and other.posted and overlap(handle.tensor, other.tensor):
                raise ValueError(f"rank {self.rank}: {handle} would share memory with {other}, "
                                 "whose wait() has not been called")  # fmt: skip
        claimed.append(handle)
        self.versions[handle] = _version(handle.tensor)

    def release(self, handle):
        """The program waits for it.  Raises ValueError if it has changed what was being sent."""
        if handle not in self.versions:
            return
        memory, before = _memory(handle.tensor), self.versions.pop(handle)
        self.by_memory[memory].remove(handle)
        if not self.by_memory[memory]:
            del self.by_memory[memory]
        if handle.operation == "send" and before != _version(handle.tensor):
            raise ValueError(f"rank {self.rank} changed its tensor between {handle} and the wait()")

    def check_none_left(self):
        """The rank's function has returned.  Raises ValueError for a handle without
        its wait()."""
        for handle in self.versions:
            if handle.posted:
                raise ValueError(f"rank {self.rank} has returned without a wait() for {handle}")

    def lend(self, thing, aliases: list):
        """The argument `thing` of a submitted call, with an alias for each of its tensors: torch
        counts what is changed by the alias apart from what the program changes."""
        if isinstance(thing, list | tuple) and type(thing) in (list, tuple):
            return type(thing)(self.lend(part, aliases) for part in thing)
        if type(thing) is not torch.Tensor or thing.requires_grad or _version(thing) is None:
            return thing
        self.lent.setdefault(_memory(thing), [thing._version, 0])[1] += 1
        aliases.append((thing, thing.data))
        return aliases[-1][1]

    def take_back(self, aliases: list):
        """The call is over.  Raises ValueError if the program has changed one of its tensors."""
        for x, alias in aliases:
            entry = self.lent[_memory(x)]
            changed, entry[1] = x._version != entry[0], entry[1] - 1
            if alias._version != entry[0] and not x.is_inference():
                torch.autograd.graph.increment_version(x)
            entry[0] = x._version
            if not entry[1]:
                del self.lent[_memory(x)]
            if changed:
                what = describe(x.dtype, x.shape)
                raise ValueError(f"rank {self.rank} changed a tensor ({what}) between submit and "
                                 "the wait()")  # fmt: skip


def overlap(a, b) -> bool:
    """Whether an element of `a` and one of `b`, views of one memory, share their place."""
    if a.numel() == 0 or b.numel() == 0 or a.element_size() != b.element_size():
        return False
    (first, end), (other, other_end) = _range(a), _range(b)
    if end <= other or other_end <= first:
        return False
    if a.is_contiguous() and b.is_contiguous():
        return True
    taken = torch.zeros(max(end, other_end), dtype=torch.bool, device="cpu")
    taken.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(taken.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def _range(x):
    reach = sum(step * (size - 1) for step, size in zip(x.stride(), x.shape))
    return x.storage_offset(), x.storage_offset() + reach + 1


def _memory(x) -> int:
    return x.untyped_storage()._cdata


def _version(x):
    """A number that every change by the program raises; None where others may change a part."""
    whole = x.untyped_storage().nbytes() == x.nbytes and not x.is_inference()
    return x._version if whole and x.nbytes else None
