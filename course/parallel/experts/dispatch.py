"""Who sends how many tokens to which expert: a plan, known to all ranks, that is run and drawn.

`dispatch_plan` makes it of what every rank asks; `exchanged` moves rows by it, there and back.
"""

import itertools
import math
from fractions import Fraction
from typing import NamedTuple

from torch.autograd import Function

from course.collectives import all_to_all, cost
from course.parallel.array.layout import even_cuts


class DispatchPlan(NamedTuple):
    """asked [ranks][experts]: how many tokens of each rank have chosen each expert; kept, how many
    of them it sees; rank r has the experts cuts[r] to cuts[r + 1]."""

    asked: list
    kept: list
    cuts: tuple

    def sent(self, rank: int) -> list[int]:
        """How many rows `rank` sends to each rank."""
        return [sum(self.kept[rank][a:b]) for a, b in itertools.pairwise(self.cuts)]

    def received(self, rank: int) -> list[int]:
        """How many rows `rank` receives from each rank."""
        here = slice(*self.cuts[rank : rank + 2])
        return [sum(row[here]) for row in self.kept]

    def blocks(self, rank: int) -> list:
        """[ranks][experts of `rank`]: the rows in each block that it receives, as they arrive."""
        here = slice(*self.cuts[rank : rank + 2])
        return [row[here] for row in self.kept]

    @property
    def tokens(self) -> list[int]:
        """How many tokens each expert sees."""
        return [sum(column) for column in zip(*self.kept)]

    @property
    def dropped(self) -> list[int]:
        """How many tokens that have chosen it each expert does not see."""
        return [sum(column) - seen for column, seen in zip(zip(*self.asked), self.tokens)]

    @property
    def imbalance(self) -> float:
        """The most tokens of an expert by the mean; 1 is balance, and so is no token at all."""
        return max(self.tokens) * len(self.tokens) / (sum(self.tokens) or math.inf) or 1.0

    def there_and_back(self, row_bytes: int, answer_bytes: int) -> cost.Cost:
        """Cost of rows of `row_bytes` to their experts and answers back, 2(p-1) alpha; of a
        backward, there_and_back(answer_bytes, row_bytes): the slopes go the same two ways."""
        p = range(len(self.kept))
        there = cost.all_to_all([[n * row_bytes for n in self.sent(rank)] for rank in p])
        back = cost.all_to_all([[n * answer_bytes for n in self.received(rank)] for rank in p])
        return there.then(back)

    def forward_cost(self, row_bytes: int, answer_bytes: int, element_bytes: int) -> cost.Cost:
        """Cost of a forward: what all ask, the balance of all, then there and back."""
        p, experts = len(self.kept), len(self.kept[0])
        asked = cost.all_gather([8 * (experts + 2)] * p)
        balance = cost.recursive_doubling_all_reduce(p, 2 * experts * element_bytes)
        return asked.then(balance).then(self.there_and_back(row_bytes, answer_bytes))


def dispatch_plan(asked, capacity=None) -> DispatchPlan:
    """The plan of `asked` [ranks][experts]: rank by rank, an expert sees tokens up to `capacity`
    (None: all), of each rank the first ones.

    Experts are dealt out evenly, the first ranks have one more.
    """
    kept, room = [], [math.inf if capacity is None else capacity] * len(asked[0])
    for row in asked:
        kept.append([min(want, left) for want, left in zip(row, room)])
        room = [left - n for left, n in zip(room, kept[-1])]
    return DispatchPlan(asked, kept, even_cuts(len(asked[0]), len(asked)))


def capacity_of(factor: float, k: int, tokens: int, experts: int) -> int:
    """How many tokens an expert sees at most: `factor` times its even share, rounded up.

    Source: Lepikhin et al. 2020, «GShard»; Fedus et al. 2021, «Switch transformers».
    """
    return math.ceil(Fraction(str(float(factor))) * k * tokens / experts)  # 1.1 times 10 are 11


class Exchanged(Function):
    """Rows to the ranks that they are for; their slopes come back the same way."""

    @staticmethod
    def forward(ctx, x, anchor, comm, sent, received):
        ctx.comm, ctx.ways = comm, (sent, received)
        out = x.new_empty(sum(received), *x.shape[1:])
        all_to_all(comm, out.split(received), x.contiguous().split(sent))
        return out

    @staticmethod
    def backward(ctx, slope):
        sent, received = ctx.ways
        return Exchanged.apply(slope, None, ctx.comm, received, sent), None, None, None, None


def exchanged(comm, x, sent, received, trained: bool):
    """x [rows, width], of which sent[r] rows in a row are for rank r: what came, received[r] from
    rank r [rows, width].

    `trained`, alike on all ranks: whether slopes come back, even if this rank wants none.
    Cost: an all-to-all of the rows; on the way back another one.
    """
    anchor = x.new_empty(0).requires_grad_() if trained else None
    return Exchanged.apply(x, anchor, comm, sent, received)
