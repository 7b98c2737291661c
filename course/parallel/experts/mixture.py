"""A layer of experts on many ranks: each token travels to its experts, and their answers back.

    mixture = MixtureOfExperts(comm, NoisyTopKGate(width, experts=8), make_expert)
    y, balance, plan = mixture(x)
    (share_of_loss(y) + balance).backward()

Every rank has some of the experts, whole, and all of the gate.  The balance is that of all ranks'
tokens, so an expert's gradient is that of the whole batch without any sum over ranks; the gate's
and the rest of the model's are summed (`course.parallel.hybrid.gradient_plan`).
"""

import copy
import math
from numbers import Real
from typing import NamedTuple

import torch
from torch import nn

from course.collectives import all_gather
from course.parallel.array.layout import even_cuts
from course.parallel.array.replicated import summed
from course.parallel.experts.dispatch import DispatchPlan, capacity_of, dispatch_plan, exchanged
from course.parallel.experts.gating import Gates, squared_variation


class Mixture(NamedTuple):
    """y [..., width] of this rank's tokens; the balance loss [] of all ranks' tokens, the same on
    each; and the plan by which tokens went to experts."""

    y: torch.Tensor
    balance: torch.Tensor
    plan: DispatchPlan


class MixtureOfExperts(nn.Module):
    """The weighted sum of what a token's experts say: y = sum over chosen i of g_i E_i(x).

    `make_expert(number)` gives expert `number` [rows, width] -> [rows, other width], the same
    wherever it is made; a rank keeps its own under `experts`, by number.  `capacity_factor` bounds
    an expert's tokens to so many times its even share of all (None: no token is dropped); who
    comes too late, by rank and then by row, gets nothing from it.  The balance loss is
    importance_weight * CV(importance)^2 + load_weight * CV(load)^2, of the tokens of `everyone`: a
    communicator that is larger than `comm` where there are several copies of the experts.

    Cost: an agreement.  Raises ValueError for fewer experts than ranks, what cannot be, and where
    ranks were given different numbers.
    Source: Shazeer et al. 2017.
    """

    def __init__(self, comm, gate, make_expert, *, capacity_factor=None, importance_weight=0.1,
                 load_weight=0.1, everyone=None):  # fmt: skip
        super().__init__()
        if gate.experts < comm.size:
            raise ValueError(
                f"rank {comm.rank}: every rank has an expert at least, so {gate.experts} of them "
                f"cannot be on {comm.size} ranks: give them a smaller group, as a grid's axis"
            )
        if not (capacity_factor is None or isinstance(capacity_factor, Real)
                and 0 < capacity_factor < math.inf):  # fmt: skip
            rule = "a capacity factor is above 0, or None for all tokens"
            raise ValueError(f"rank {comm.rank}: {rule}, not {capacity_factor!r}")
        if not {*comm.members} <= {*(everyone or comm).members}:
            raise ValueError(f"rank {comm.rank}: everyone are all ranks that share the experts and "
                             f"more, and {everyone} is not all of {comm}")  # fmt: skip
        _require_same(comm, gate, capacity_factor, importance_weight, load_weight)
        self.comm, self.gate, self.capacity_factor = comm, gate, capacity_factor
        self.everyone, self.balance_weights = everyone or comm, (importance_weight, load_weight)
        first, end = even_cuts(gate.experts, comm.size)[comm.rank : comm.rank + 2]
        self.experts = nn.ModuleDict({str(i): make_expert(i) for i in range(first, end)})

    def forward(self, x, noise=None) -> Mixture:
        """The Mixture of x [..., width], this rank's tokens; noise [tokens, experts] is the gate's.

        Cost: an all-gather of 8 (experts + 2) bytes, an all-reduce of 2 experts values, and the
        plan's rows there and back; backward, the rows' slopes the same ways.
        """
        rows = x.reshape(-1, x.shape[-1])
        gates = self.gate(rows, noise)
        plan, trained = self._agree(rows, gates)
        balance = self._balance(gates)
        order = kept_order(gates.chosen, plan, self.comm.rank)
        sent, received = plan.sent(self.comm.rank), plan.received(self.comm.rank)
        there = exchanged(self.comm, rows[order // self.gate.k], sent, received, trained[0])
        said = self._ask(there, plan.blocks(self.comm.rank))
        back = exchanged(self.comm, said, received, sent, trained[1])
        y = combined(back, gates, order)
        return Mixture(y.reshape(*x.shape[:-1], y.shape[-1]), balance, plan)

    def __deepcopy__(self, memo):
        """A layer of its own on the same ranks."""
        memo.update({id(comm): comm for comm in (self.comm, self.everyone)})
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def _agree(self, rows, gates) -> tuple:
        """The plan of all ranks, and whether anyone wants slopes of the rows there and back."""
        experts = self.gate.experts
        learns = any(p.requires_grad for p in self.experts.parameters())
        own = [*asked_of(gates.chosen, experts), rows.requires_grad, rows.requires_grad or learns]
        mine = torch.tensor(list(map(int, own)), device="cpu")
        everyone = [torch.empty_like(mine) for _ in range(self.comm.size)]
        all_gather(self.comm, everyone, mine)
        told = torch.stack(everyone).tolist()
        asked = [row[:experts] for row in told]
        capacity, factor = None, self.capacity_factor
        if factor is not None:
            tokens = sum(map(sum, asked)) // self.gate.k
            capacity = capacity_of(factor, self.gate.k, tokens, experts)
        trained = [any(column) for column in zip(*[row[experts:] for row in told])]
        return dispatch_plan(asked, capacity), trained

    def _balance(self, gates: Gates):
        importance, load = summed(self.everyone, torch.stack([gates.importance, gates.load]))
        weights = self.balance_weights
        return weights[0] * squared_variation(importance) + weights[1] * squared_variation(load)

    def _ask(self, rows, blocks):
        """What this rank's experts say of the rows that came, in the order in which they came."""
        flat = [n for row in blocks for n in row]
        pieces, count = rows.split(flat), len(self.experts)
        said = []
        for number, expert in enumerate(self.experts.values()):
            mine = pieces[number::count]
            said.append(expert(torch.cat(mine)).split([len(piece) for piece in mine]))
        return torch.cat([piece for row in zip(*said) for piece in row])


def _require_same(comm, gate, factor, importance, load):
    mine = (f"{gate.k} of {gate.experts} experts, a capacity factor of {factor} and weights "
            f"{importance} and {load} of balance")  # fmt: skip
    for rank, theirs in enumerate(comm.gather_texts(mine)):
        if theirs != mine:
            raise ValueError(f"all ranks make the same mixture: rank {comm.rank} has {mine}, and "
                             f"rank {rank} has {theirs}")  # fmt: skip


def asked_of(chosen, experts: int) -> list[int]:
    """How many of this rank's tokens have chosen each expert; on the meta device, as if in turn."""
    if chosen.is_meta:
        return [(chosen.numel() + experts - 1 - i) // experts for i in range(experts)]
    return torch.bincount(chosen.reshape(-1), minlength=experts).tolist()


def kept_order(chosen, plan: DispatchPlan, rank: int) -> torch.Tensor:
    """Which entries of chosen [tokens, k], counted row by row, travel: [rows], sorted by expert,
    and of each expert by token, without those that are dropped."""
    asked, kept = plan.asked[rank], plan.kept[rank]
    if chosen.is_meta:
        return chosen.new_empty(sum(kept))
    by_expert = chosen.reshape(-1).sort(stable=True).indices.split(asked)
    return torch.cat([entries[:n] for entries, n in zip(by_expert, kept)])


def combined(said, gates: Gates, order) -> torch.Tensor:
    """The weighted sum of what experts said of each token: [tokens, width] of said [rows, width],
    row j of which answers entry order[j] of the gates."""
    tokens, k = gates.chosen.shape
    weighted = said * gates.weights.reshape(-1)[order][:, None]
    y = weighted.new_zeros(tokens, said.shape[1])
    return y.index_add(0, order // k, weighted)
