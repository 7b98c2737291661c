"""Weights that several stages share: each has a copy, and the gradient of all together."""

import contextlib
import json

import torch

from course.collectives import all_reduce, broadcast
from course.comm.errors import listed
from course.comm.tensors import describe


class TiedWeights:
    """`groups` [[(stage, name of its parameter), ...], ...]: those of a group are one weight.

    They begin as the first of their group, on its rank.  Raises ValueError for what is no such
    group, a parameter that the stage has not, one that is alone or in two groups, weights of
    different shapes, and a weight of `modules` [stage] that several ranks have and no group.
    Cost: a split, an agreement and a broadcast of each group.
    """

    def __init__(self, comm, schedule, modules, groups):
        self.groups, taken = [], set()  # of this rank: its copies, and the ranks that have some
        for group in groups:
            _require_pairs(group, schedule.stages, comm.rank)
        _require_told(modules, schedule, {tuple(entry) for group in groups for entry in group})
        here = schedule.own_stages(comm.rank)
        for group in groups:
            ranks = sorted({schedule.rank_of[stage] for stage, _ in group})
            mine = {_parameter(modules[stage], stage, name): (stage, name)
                    for stage, name in group if stage in here}  # fmt: skip
            for copy in taken & mine.keys():
                raise ValueError(f"rank {comm.rank}: a weight is in one tied group, and "
                                 f"{mine[copy]} is in two")  # fmt: skip
            taken |= mine.keys()
            some = comm.split(0 if mine else None)
            if mine:
                _require_alike(some, group, mine)
                first, *others = mine
                broadcast(some, first.detach(), ranks.index(schedule.rank_of[group[0][0]]))
                for other in others:
                    other.detach().copy_(first.detach())
                self.groups.append(([*mine], some))

    @contextlib.contextmanager
    def summed(self):
        """What is added to the gradient of a copy in here is added to those of all its group; if
        it raises, each has the gradient that it had.

        Cost: for each group an all-reduce of three numbers, and one of the weight, unless no copy
        has a gradient.  Raises ValueError where some copies are frozen and others are not.
        """
        before, totals = {p: p.grad for copies, _ in self.groups for p in copies}, {}
        for copy in before:
            copy.grad = None
        try:
            yield
            for copies, comm in self.groups:
                totals |= dict.fromkeys(copies, _total(comm, copies))
        finally:
            for copy, gradient in before.items():
                copy.grad = gradient
        for copy, total in totals.items():
            if total is not None:
                copy.grad = total.clone() if copy.grad is None else copy.grad.add_(total)


def _total(comm, copies):
    """The sum of the gradients of all copies; None where none has one."""
    found = [p.grad for p in copies if p.grad is not None]
    counts = [len(found), len(copies), sum(p.requires_grad for p in copies)]
    counts = torch.tensor(counts, device="cpu")
    all_reduce(comm, counts, algorithm="recursive_doubling")
    given, there, trained = counts.tolist()
    if trained not in (0, there):
        raise ValueError(f"rank {comm.rank}: copies of a tied weight are all trained or all frozen,"
                         f" and {trained} of {there} are trained")  # fmt: skip
    if not given:
        return None
    total = sum(found[1:], found[0]) if found else torch.zeros_like(copies[0])
    all_reduce(comm, total)
    return total


def _require_pairs(group, stages, rank):
    if len(group) < 2:
        raise ValueError(f"rank {rank}: tied weights are two or more, not {list(group)}")
    for entry in group:
        pair = isinstance(entry, tuple | list) and len(entry) == 2
        if not pair or entry[0] not in range(stages):
            raise ValueError(f"rank {rank}: tied weights are groups of (a stage of {stages}, the "
                             f"name of its parameter): {entry!r} in {group} is none")  # fmt: skip


def _require_told(modules, schedule, told):
    places = {}  # of each weight that is trained: where it is, as far as this rank was told
    for stage in range(schedule.stages):
        with contextlib.suppress(LookupError, AttributeError):
            for name, p in modules[stage].named_parameters():
                if p.requires_grad:
                    places.setdefault(p, []).append((stage, name))
    for found in places.values():
        ranks = {schedule.rank_of[stage] for stage, _ in found}
        if len(ranks) > 1 and not told.issuperset(found):
            raise ValueError(f"stages on {listed(ranks)} share a weight, whose gradient is the sum "
                             f"of theirs: say tied=[{found}]")  # fmt: skip


def _require_alike(comm, group, mine):
    told = [describe(p.dtype, p.shape) for p in mine]
    kinds = {kind for text in comm.gather_texts(json.dumps(told)) for kind in json.loads(text)}
    if len(kinds) > 1:
        raise ValueError(f"rank {comm.rank}: tied weights have one shape and dtype, and those of "
                         f"{list(group)} are {' and '.join(sorted(kinds))}")  # fmt: skip


def _parameter(module, stage, name):
    try:
        return module.get_parameter(name)
    except AttributeError:
        raise ValueError(f"stage {stage} has no parameter {name!r} to be tied") from None
