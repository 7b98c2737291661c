"""Times of a quiet machine, to be set beside those of a busy one: two cores, November 2026."""

# All-reduces on 4 hosts at 1 Gb/s: the slowest rank's least seconds, by bytes of the vector.
SIZES = (2**10, 2**14, 2**18, 2**21, 2**24)
ALL_REDUCE_S = {
    "flat": (0.000324, 0.000287, 0.011, 0.103, 0.844),
    "tree": (0.00044, 0.000421, 0.00846, 0.0772, 0.578),
    "recursive_doubling": (0.000191, 0.000228, 0.00414, 0.0377, 0.296),
    "ring": (0.000996, 0.00131, 0.00341, 0.0309, 0.215),
    "halving_doubling": (0.000722, 0.000758, 0.00347, 0.0293, 0.226),
}
