"""Buffers in flight: from `isend` or `irecv` to its `wait()` a tensor belongs to the message."""

import torch


class BuffersInFlight:
    """The tensors that one rank's messages own until they are waited for."""

    def __init__(self, rank: int):
        self.rank, self.by_memory, self.versions = rank, {}, {}

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
        """The rank's function has returned.  Raises ValueError for a receive that nobody awaits."""
        for handle in self.versions:
            if handle.operation == "recv" and handle.posted:
                raise ValueError(f"rank {self.rank} has returned without a wait() for {handle}")


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
