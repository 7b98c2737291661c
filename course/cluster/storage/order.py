"""In which order samples are read: every one once an epoch, whatever the number of ranks.

The order is one for all ranks, and a position in it is a number: a job that goes on with more or
fewer ranks takes the rest of it.
"""

import numpy as np

from course.comm.counts import required_count


def epoch_order(groups, seed: int, epoch: int, window: int = 8) -> np.ndarray:
    """All sample numbers [n] as they are read in an epoch, at random.

    `groups`: how many samples lie together, as in a shard.  Groups are shuffled, and then the
    samples of every `window` of them: so many shards are read at the same time.
    """
    required_count(window, "the number of groups that are read together")
    generator, ends = np.random.default_rng([seed, epoch]), np.cumsum(groups)
    parts = [np.arange(ends[group] - groups[group], ends[group])
             for group in generator.permutation(len(groups))]  # fmt: skip
    mixed = (np.concatenate(parts[first : first + window])
             for first in range(0, len(parts), window))  # fmt: skip
    return np.concatenate([generator.permutation(numbers) for numbers in mixed])


def steps_left(left: int, batch: int, ranks: int) -> int:
    """How many steps `left` samples are: as few as batches of `batch` allow, and no rank without.

    Raises ValueError where there are fewer samples than ranks, as for a job that goes on with more
    ranks just before an epoch's end.
    """
    if left < ranks:
        raise ValueError(
            f"each of {ranks} ranks needs a sample in every step, and {left} are left: finish the "
            "epoch with that many ranks or fewer"
        )
    return min(-(-left // (batch * ranks)), left // ranks)


def next_step(left: int, batch: int, ranks: int) -> int:
    """How many of `left` samples the next step takes on all ranks: all steps are alike, within 1.

    So the last one is no smaller, and a rank has `batch` samples at most; of a batch of 1 it may
    have 2.
    """
    return left // steps_left(left, batch, ranks)


def share(samples, rank: int, ranks: int):
    """What of the `samples` of a step is for `rank`: as many as for any other, within 1."""
    n = len(samples)
    return samples[n * rank // ranks : n * (rank + 1) // ranks]
