"""Refuse rows of numbers and constants that no method can learn from or with."""


def check_samples(name, rows, least=1):
    """Raises ValueError unless `rows` [`least` or more, 1 or more] are finite floating point."""
    if rows.dim() != 2 or len(rows) < least or 0 in rows.shape:
        raise ValueError(f"{name} must be [{least} or more, 1 or more], not {list(rows.shape)}")
    check_finite(name, rows)


def check_finite(name, x):
    """Raises ValueError unless `x` [any shape], which is `name`, is finite floating point."""
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, not {x.dtype}")
    if not x.isfinite().all():
        raise ValueError(f"{name} must be finite numbers, and some are nan or infinite")


def check_above_zero(name, value):
    """Raises ValueError unless `value`, which is `name`, is above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be above 0, not {value}")


def check_not_negative(name, value):
    """Raises ValueError unless `value`, which is `name`, is 0 or more."""
    if not value >= 0:
        raise ValueError(f"{name} must be 0 or more, not {value}")
