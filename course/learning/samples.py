"""Refuse rows of numbers that no method can learn from."""


def check_samples(name, rows, least=1):
    """Raises ValueError unless `rows` [`least` or more, 1 or more] are finite floating point."""
    if rows.dim() != 2 or len(rows) < least or 0 in rows.shape:
        raise ValueError(f"{name} must be [{least} or more, 1 or more], not {list(rows.shape)}")
    if not rows.is_floating_point():
        raise ValueError(f"{name} must be floating point, not {rows.dtype}")
    if not rows.isfinite().all():
        raise ValueError(f"{name} must be finite numbers, and some are nan or infinite")
