"""What ranks find out together before their gradients are used: all raise the same, or none."""

import json

import torch

from course.collectives import all_gather


def require_weights(comm, buckets, backwards):
    """Raise RuntimeError where it cannot be known what the ranks' gradients count.

    Cost: nothing, unless the `backwards` that some rank has gathered had different rows; then an
    all-gather of these.
    """
    _, outside, uneven, _ = map(max, zip(*[bucket.counts for bucket in buckets]))
    if any(bucket.counts[1] % comm.size for bucket in buckets):
        raise RuntimeError(
            f"the backward of {outside:.0f} of {comm.size} ranks went through no forward of "
            "the wrapper, so what their gradients count is not known: call the wrapper on every "
            "rank, with samples=0 where there are none"
        )
    if uneven:
        _require_same_rows(comm, [backward.weight for backward in backwards if backward.rows])


def _require_same_rows(comm, mine):
    """Weights of what `no_sync` gathered are known only if all ranks had the same sequence of rows:
    otherwise each pass would need a message of its own."""
    everyone = [json.loads(text) for text in comm.gather_texts(json.dumps(mine))]
    for rank, theirs in enumerate(everyone):
        if theirs != everyone[0]:
            raise RuntimeError(
                f"backwards within no_sync() had {_few(everyone[0])} rows on rank 0 and "
                f"{_few(theirs)} on rank {rank}: their weights would need messages; take "
                "micro-batches of equal rows, or leave no_sync() out"
            )


def blame(comm, names, fine):
    """The sums of some parameters are not finite: raise FloatingPointError that says whose part was
    not.  fine: whether this rank's part of each of them is.  Cost: an all-gather."""
    mine = torch.tensor(list(fine.values()), device="cpu")
    everyone = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, everyone, mine)
    told = [f"{names[p]} on rank {rank}" for rank, theirs in enumerate(everyone)
            for p, ok in zip(fine, theirs.tolist()) if not ok]  # fmt: skip
    first = names[next(iter(fine))]
    whose = ", ".join(told[:4]) or f"the sum of {first}, which overflowed"
    raise FloatingPointError(f"gradients must be finite; these are not: {whose}")


def _few(weights) -> str:
    return ", ".join(f"{weight:g}" for weight in weights[:8])
