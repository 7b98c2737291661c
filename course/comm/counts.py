"""Whole numbers that callers give: of ranks, of steps, of samples."""

from numbers import Integral


def required_count(value, name: str, rank=None, least: int = 1) -> int:
    """`value`, which is `name`, if it is a whole number of `least` or more; True is none.

    Raises ValueError that names the number, and the rank where there is one.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and int(value) >= least:
        return int(value)
    where = "" if rank is None else f"rank {rank}: "
    raise ValueError(f"{where}{name} is a whole number, {least} or more, not {value!r}")
