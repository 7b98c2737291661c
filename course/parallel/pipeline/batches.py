"""A batch cut into micro-batches, and what each of them counts."""

from numbers import Integral

from course.parallel.pipeline.parcels import mapped, tensors_of


def rows_of(value, rank: int) -> int | None:
    """The rows of the tensors in a structure, which all have as many; None without tensors.

    Raises ValueError where they have not.
    """
    rows = {len(x) for x in tensors_of(value) if x.dim()}
    if len(rows) > 1:
        raise ValueError(f"rank {rank}: tensors of a batch have the same number of rows, not "
                         f"{', '.join(map(str, sorted(rows)))}")  # fmt: skip
    return rows.pop() if rows else None


def sizes_of(rows, sizes, micro_batches: int, rank: int) -> list[int]:
    """The rows of each micro-batch: `sizes`, or as equal as can be, the larger ones first.

    Raises ValueError for sizes that are not of all `rows`, or not of all micro-batches.
    """
    if sizes is None:
        if rows is None:
            raise ValueError(f"rank {rank}: of how many rows is the batch?  Give the last stage "
                             "its inputs or its target, or say sizes=")  # fmt: skip
        return [rows // micro_batches + (number < rows % micro_batches)
                for number in range(micro_batches)]  # fmt: skip
    sizes = list(sizes)
    whole = all(isinstance(n, Integral) and n >= 0 for n in sizes)
    if len(sizes) != micro_batches or not whole:
        raise ValueError(f"rank {rank}: the schedule has {micro_batches} micro-batches, and sizes "
                         f"are {sizes}")  # fmt: skip
    if rows not in (None, sum(sizes)):
        told = " + ".join(map(str, sizes))
        raise ValueError(f"rank {rank}: a batch of {rows} rows is not {told}")
    return sizes


def cut(value, sizes) -> list:
    """The structure of each micro-batch: these rows of each tensor, and the rest as it is."""
    parts = {x: x.split(sizes) for x in tensors_of(value) if x.dim()}
    return [mapped(lambda x, i=i: parts[x][i] if x in parts else x, value)
            for i in range(len(sizes))]  # fmt: skip
