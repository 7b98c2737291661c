"""What can go wrong between ranks, each a sentence that names ranks, calls and values."""


class CommError(RuntimeError):
    """Something went wrong between ranks."""


class CommMismatch(CommError):
    """Ranks that must do the same thing do different things."""


class CommTimeout(CommError):
    """A rank waited longer than its time-out for another."""


class PeerLost(CommError):
    """Ranks that are waited for have ended: those of the numbers `ranks` in the world."""

    def __init__(self, sentence, ranks=()):
        super().__init__(sentence)
        self.ranks = tuple(sorted(ranks))


def listed(ranks) -> str:
    """Ranks in words: `rank 2`, `ranks 0, 1, 3`."""
    ranks = sorted(ranks)
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def differing(labels: dict[int, str]) -> str:
    """One sentence that says which ranks (the keys of `labels`) are in which call (the values)."""
    by_call = {}
    for rank, label in labels.items():
        by_call.setdefault(label, []).append(rank)
    groups = sorted(by_call.items(), key=lambda item: (len(item[1]), item[1]))
    return "; ".join(
        f"{listed(ranks)} {'is' if len(ranks) == 1 else 'are'} in {label}"
        for label, ranks in groups
    )
