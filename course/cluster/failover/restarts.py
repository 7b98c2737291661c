"""Training that survives its ranks: it is started again, and goes on from the last checkpoint."""

from typing import NamedTuple

import torch

from course.cluster.failover.folder import CheckpointFolder
from course.cluster.failover.parts import Alike
from course.collectives import all_reduce
from course.comm.counts import required_count
from course.comm.errors import CommTimeout, PeerLost
from course.worlds.launch import run
from course.worlds.supervise import RankError


class Losses:
    """The losses of all steps so far, one number each."""

    def __init__(self):
        self.values = []

    def state_dict(self):
        return {"values": torch.tensor(self.values, dtype=torch.float64)}  # in one piece

    def load_state_dict(self, state):
        self.values = state["values"].tolist()


def train_with_checkpoints(
    comm, step, steps, order, parts, checkpoints, *, other_ranks=False
) -> list[float]:
    """Take steps until there are `steps`, those before the last whole checkpoint not again; the
    losses of all of them, each of the whole batch.

    step(rows) -> the mean loss [] of this rank's `rows` (numbers of samples; perhaps none), once it
    has learned from them.  `parts` {name: part} is all that it changes; the `order`'s position and
    the losses are saved with it.  Raises what `checkpoints` raises.
    Cost: an all-reduce of two numbers a step, beside what `step` and `checkpoints` cost.
    """
    losses = Losses()
    own = {"order": order, "losses": Alike(losses)}
    if taken := own.keys() & parts.keys():
        told = f"{min(taken)} is the name of a part that is saved anyway"
        raise ValueError(f"rank {comm.rank}: {told}")
    parts = {**parts, **own}
    begun = checkpoints.restore(parts, other_ranks=other_ranks)
    for done in range(begun + 1, steps + 1):
        rows = order.next().tensor_split(comm.size)[comm.rank]
        losses.values.append(_of_all(comm, step(rows), len(rows)))
        if checkpoints.due(done) or done == steps:
            checkpoints.save(done, parts)
    checkpoints.finish()
    return losses.values


def _of_all(comm, loss, rows) -> float:
    """The mean of all ranks' losses, each of so many rows."""
    seen = float(torch.as_tensor(loss).detach()) * rows if rows else 0.0
    total = torch.tensor([seen, rows], dtype=torch.float64)
    all_reduce(comm, total, algorithm="recursive_doubling")
    return float(total[0] / total[1])


class Restarted(NamedTuple):
    """What a training that was started again has come to: its `values`, by rank; of each start its
    `ranks` and the step that it `began` at; of each end but the last who was `lost`."""

    values: list
    ranks: list
    began: list
    lost: list


def train_with_restarts(program, ranks, folder, *args, after=None, in_vain=5, **options):
    """`run(program, ranks, folder, *args, **options)`, again whenever ranks were lost: Restarted.

    program(comm, folder, *args) goes on from the checkpoints in `folder`.  after(ranks, error) ->
    how many ranks go on [default: as many].  Raises what `run` does where the program failed by
    itself, since it would again, and RankError where `in_vain` starts in a row came no further.
    """
    required_count(in_vain, "the number of starts in vain")
    result = Restarted([], [], [], [])
    while True:
        result.began.append(_newest(folder))
        result.ranks.append(ranks)
        try:
            values = run(program, ranks, folder, *args, **options)
            return result._replace(values=values)
        except RankError as error:
            if not isinstance(error.exception, PeerLost | CommTimeout):
                raise
            if result.began[-in_vain:] == [_newest(folder)] * in_vain:
                raise
            result.lost.append(str(error).partition("\n")[0])
            ranks = after(ranks, error) if after else ranks


def _newest(folder) -> int:
    return max(CheckpointFolder(folder).steps(), default=0)
