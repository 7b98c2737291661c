"""What can go wrong between ranks, each a sentence that names ranks, calls and values."""


class CommError(RuntimeError):
    """Something went wrong between ranks."""


class CommMismatch(CommError):
    """Ranks that must do the same thing do different things."""


class CommTimeout(CommError):
    """A rank waited longer than its time-out for another."""


class Deadlock(CommTimeout):
    """Ranks wait for one another, and nothing is under way that could change that."""


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


def refusal(rank: int, place, peer: int, message) -> str:
    """Why `rank` refuses what `peer` sends: a place and a message, by envelope, that differ."""
    return differing({
        rank: f"recv from rank {peer} ({place})",
        peer: f"send to rank {rank} ({message})",
    })  # fmt: skip


def peer_lost(peers, lost: bool, rank: int, operation) -> PeerLost:
    """What `rank` hears in `operation` when `peers` are `lost`, or else have returned."""
    many, verb = len(peers) > 1, ("was", "were") if lost else ("has", "have")
    end = "lost" if lost else f"returned from {'their functions' if many else 'its function'}"
    return PeerLost(
        f"{listed(peers)} {verb[many]} {end} while rank {rank} was in {operation}", peers
    )


def timed_out(rank: int, timeout_s: float, operation) -> CommTimeout:
    """What `rank` hears when nothing has moved for so long."""
    return CommTimeout(f"rank {rank} waited {timeout_s:g} s in {operation}")
