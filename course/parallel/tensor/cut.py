"""How a parameter is cut over ranks: a plan, as data; and layers that keep a part of theirs.

Parts may be uneven, and empty: a rank without one computes with tensors of nothing, and so takes
part in every message, backwards too.
"""

import copy
import itertools
from typing import NamedTuple

import torch
from torch import nn

from course.parallel.array.layout import cut_at, even_cuts


class Cut(NamedTuple):
    """Of axis `axis` of a parameter rank r has the indices cuts[r] to cuts[r + 1]; if the axis is
    of several equal `blocks`, as those of queries, keys and values, it has these of each."""

    axis: int
    cuts: tuple
    blocks: int = 1

    def part(self, whole, rank: int) -> torch.Tensor:
        """What of a whole parameter a rank has."""
        length = lengths(self.cuts)[rank]
        blocks = whole.unflatten(self.axis, (self.blocks, self.cuts[-1]))
        mine = blocks.narrow(self.axis + 1, self.cuts[rank], length)
        return mine.flatten(self.axis, self.axis + 1)

    def whole(self, parts) -> torch.Tensor:
        """The parameter of which these are the parts, one a rank."""
        blocks = [part.unflatten(self.axis, (self.blocks, length))
                  for part, length in zip(parts, lengths(self.cuts))]  # fmt: skip
        return torch.cat(blocks, self.axis + 1).flatten(self.axis, self.axis + 1)


def lengths(cuts) -> list[int]:
    """How many indices each part has."""
    return [stop - start for start, stop in itertools.pairwise(cuts)]


def checked_cuts(comm, length: int, cuts=None) -> tuple:
    """`cuts` (0, ..., length) of an axis, a part for each rank; parts that differ by one at most if
    none are given.  Raises ValueError for others."""
    if cuts is None:
        return even_cuts(length, comm.size)
    try:
        cuts = cut_at((length,), {0: cuts}).cuts[0]
    except ValueError as error:
        raise ValueError(f"rank {comm.rank}: {error}") from None
    if len(cuts) != comm.size + 1:
        raise ValueError(f"rank {comm.rank}: the cuts {cuts} make {len(cuts) - 1} parts, and there "
                         f"are {comm.size} ranks")  # fmt: skip
    return cuts


def required_layer(comm, layer, kind):
    """`layer` if it is of this `kind` of torch's.  Raises ValueError."""
    if not isinstance(layer, kind):
        found = f"not {type(layer).__name__}"
        raise ValueError(f"rank {comm.rank}: what is cut here is a {kind.__name__}, {found}")
    return layer


class OnRanks(nn.Module):
    """A module that works together with the others of the ranks of `comm`, and so do its copies."""

    def __init__(self, comm):
        super().__init__()
        self.comm = comm

    def __deepcopy__(self, memo):
        memo[id(self.comm)] = self.comm
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin


class CutLayer(OnRanks):
    """A layer of which each rank of `comm` has parts: `cut` {name: Cut} says of which parameters.
    The others are whole, and equal on all ranks.  `algorithm`: of its all-reduces."""

    def __init__(self, comm, algorithm):
        super().__init__(comm)
        self.algorithm, self.cut = algorithm, {}

    def keep(self, name, whole, cut=None):
        """Keep this rank's part of a parameter, or None where there is none."""
        if whole is not None:
            mine = whole.detach() if cut is None else cut.part(whole.detach(), self.comm.rank)
            mine = mine.clone(memory_format=torch.contiguous_format)
            whole = nn.Parameter(mine, whole.requires_grad)
            self.cut |= {name: cut} if cut else {}
        self.register_parameter(name, whole)
