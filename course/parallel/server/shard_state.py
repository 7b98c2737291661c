"""What a server keeps of its shard: the weights, the state of their update, what it has saved."""

from collections import Counter

from course.comm.tensors import describe
from course.parallel.server.messages import NEVER, ReplyHead
from course.parallel.server.staleness import Applied


class ShardState:
    """Shard number `number` of a plan: its `values` [elements] and their `version`, the updates so
    far; the `state` of the update, and how many pushes it has of each client, `counts`.

    `update`, `scale` and `snapshots` are as `serve` has them; servers are `in_step` if they make
    the same updates, so that they must begin again at the same version.
    """

    def __init__(self, plan, number, values, update, scale=None, snapshots=None, in_step=True):
        self.plan, self.number, self.values = plan, number, values
        self.update, self.scale = update, scale
        self.snapshots, self.in_step = snapshots, in_step
        self.version, self.state, self.counts = 0, {}, Counter()
        self.saved, self.saved_counts = NEVER, {}

    def restore(self):
        """Go on from the snapshots, if there are any: in step from the newest version that all
        servers have; else save version 0, so that there always is one.

        What is newer is of updates that are made again, and is removed.  Nobody saves another
        version before all have come here, since no client pushes before all have answered it.
        Raises ValueError for snapshots that are not of these shards, or of no common version.
        """
        if self.snapshots is None:
            return None
        version = self.snapshots.newest(*self._place, common=self.in_step)
        if version is None:
            return self.save()
        kept = self.snapshots.load(*self._place, version)
        self._require_fitting(kept)
        self.snapshots.restrict(*self._place, 0, version)
        self.values, self.state, self.counts = kept["values"], kept["state"], kept["counts"]
        self.version = self.saved = version
        self.counts, self.saved_counts = Counter(self.counts), dict(self.counts)

    def apply(self, pushes) -> list[Applied]:
        """One update, with the mean over the samples of these `pushes`; saved if that is due."""
        samples = sum(push.samples for push in pushes)
        if samples:
            parts = [push.gradient * (push.samples / samples) for push in pushes if push.samples]
            staleness = max(self.version - push.based for push in pushes)
            factor = self.scale(staleness) if self.scale else 1
            self.update(self.values, sum(parts[1:], parts[0]), self.state, factor)
        applied = [Applied(push.client, push.based, self.version) for push in pushes]
        self.counts.update(push.client for push in pushes)
        self.version += 1
        if self.snapshots is not None and self.snapshots.due(self.version):
            self.save()
        return applied

    def save(self):
        """Save this version, and remove what no server will begin with again."""
        if self.snapshots is None or self.saved == self.version:
            return
        state = {"version": self.version, "bounds": list(self.plan.bounds), "values": self.values,
                 "state": self.state, "counts": dict(self.counts)}  # fmt: skip
        self.snapshots.save(*self._place, state)
        self.saved, self.saved_counts = self.version, dict(self.counts)
        oldest = self.snapshots.newest(*self._place, common=self.in_step) or 0
        self.snapshots.restrict(*self._place, oldest, self.version)

    def head(self, client) -> ReplyHead:
        """What a client is told with the weights."""
        saved = self.saved, self.saved_counts.get(client, 0)
        return ReplyHead(self.version, self.counts[client], *saved)

    @property
    def _place(self):
        return self.number, len(self.plan.servers)

    def _require_fitting(self, kept):
        bounds, theirs = list(self.plan.bounds), kept["values"]
        if (kept["bounds"], theirs.dtype) != (bounds, self.values.dtype):
            raise ValueError(
                f"rank {self.plan.servers[self.number]}: a snapshot in {self.snapshots.folder} has "
                f"{describe(theirs.dtype, theirs.shape)} of shards with bounds {kept['bounds']}, "
                f"not {describe(self.values.dtype, self.values.shape)} of {bounds}"
            )
