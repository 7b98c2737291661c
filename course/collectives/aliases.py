"""Tensors that share memory: which inputs of a collective call its outputs would overwrite."""

from course.comm.buffers import overlap


def overwritten(rank, outs, parts=()) -> set[int]:
    """Which of `parts` share elements with one of `outs`.

    Raises ValueError where two outs do: what came first would be lost.
    """
    tensors, found, before = [*outs, *parts], set(), []
    for start, end, one in sorted((*_range(x), number) for number, x in enumerate(tensors)):
        before = [(reach, other) for reach, other in before if start < reach]
        for first, second in (sorted((one, other)) for _, other in before):
            if first < len(outs) and _share(tensors[first], tensors[second]):
                if second < len(outs):
                    rule = "share memory, so that one part would overwrite the other"
                    raise ValueError(f"rank {rank}: outs {first} and {second} {rule}")
                found.add(second - len(outs))
        before.append((end, one))
    return found


def _range(x):
    """Where a tensor begins and ends in memory; on the meta device, and if empty, it has none."""
    reach = 1 + sum(step * (size - 1) for step, size in zip(x.stride(), x.shape))
    start = x.data_ptr()
    return start, start + (0 if x.is_meta or not x.numel() else reach * x.element_size())


def _share(a, b) -> bool:
    same = a.untyped_storage()._cdata == b.untyped_storage()._cdata
    if same and a.dtype == b.dtype:
        return overlap(a, b)
    return a.numel() > 0 and b.numel() > 0  # of ranges that meet: no message is worth the doubt
