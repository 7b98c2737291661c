"""A committee over ranks: each trains some of the members, and judges the rows that it has.

Members travel and rows stay, as it must be where rows are many: `train_committee` gives every rank
all members, `best_of_all` finds the rows with the highest scores, wherever they are.
"""

import math

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course.collectives import all_gather
from course.comm.counts import required_count


def train_committee(comm, make, train, members: int) -> list:
    """`members` networks on every rank: number m is make(m), and rank m % p has trained it in place
    by train(net, m).

    Cost: an all-gather of their weights; a rank sends about (p - 1) / p of all.
    Raises ValueError for networks with buffers, which are no weights and would not travel.
    """
    members = required_count(members, "members", comm.rank)
    nets = [make(number) for number in range(members)]
    if held := [name for name, _ in nets[0].named_buffers()]:
        raise ValueError(f"members of a committee have no buffers, and these have {held}")
    for number in range(comm.rank, members, comm.size):
        train(nets[number], number)
    with torch.no_grad():
        table = torch.stack([parameters_to_vector(net.parameters()) for net in nets])
        parts = [table[rank :: comm.size].clone() for rank in range(comm.size)]
        all_gather(comm, parts, parts[comm.rank].clone())
        for rank, part in enumerate(parts):
            for net, weights in zip(nets[rank :: comm.size], part):
                vector_to_parameters(weights, net.parameters())
    return nets


def best_of_all(comm, scores, rows, k: int):
    """The numbers of the `k` rows with the highest scores of all ranks, on every rank: int64 [k].

    `scores` [n] are those of this rank's `rows` int64 [n], numbers that no other rank has; n may
    differ and be 0.  Of equal scores the lowest number comes first.  Cost: an all-gather of 16
    bytes for each of k rows of a rank, however many rows there are.
    Raises ValueError on all ranks if there are fewer than k rows, on one whose scores are nan.
    """
    k = required_count(k, "k", comm.rank)
    if scores.shape != rows.shape or scores.dim() != 1 or scores.isnan().any():
        shapes = f"{list(scores.shape)} and {list(rows.shape)}"
        raise ValueError(f"rank {comm.rank}: scores are one number a row, none nan, not {shapes}")
    mine = torch.full((k, 2), -math.inf, dtype=torch.float64)
    best = _order(scores, rows)[:k]
    mine[: len(best)] = torch.stack([scores[best].double(), rows[best].double()], dim=1)
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, parts, mine)
    table = torch.cat(parts)
    table = table[table[:, 1] >= 0]  # no row has the number -inf
    if len(table) < k:
        raise ValueError(f"{k} rows cannot be chosen from the {len(table)} of all ranks")
    numbers = table[:, 1].long()
    return numbers[_order(table[:, 0], numbers)[:k]]


def _order(scores, rows):
    """Places by falling score, and by rising row where scores are equal."""
    by_row = rows.argsort()
    return by_row[scores[by_row].sort(descending=True, stable=True).indices]
