"""Weights that several stages share: each has a copy, and the gradient of all together."""

import torch

from course.collectives import all_reduce, broadcast


class TiedWeights:
    """`groups` [[(stage, name of its parameter), ...], ...]: those of a group are one weight.

    They begin as the first of their group, on its rank.  Raises ValueError for a parameter that
    the stage has not, or one that is alone.  Cost: two splits and a broadcast of each group.
    """

    def __init__(self, comm, schedule, modules, groups):
        self.groups = []  # of this rank: its parameters, and the communicator of all who have some
        for group in groups:
            if len(group) < 2:
                raise ValueError(f"tied weights are two or more, not {list(group)}")
            ranks = sorted({schedule.rank_of[stage] for stage, _ in group})
            mine = [_parameter(modules[stage], stage, name) for stage, name in group
                    if stage in modules]  # fmt: skip
            some = comm.split(0 if mine else None)
            if mine:
                root = ranks.index(schedule.rank_of[group[0][0]])
                broadcast(some, mine[0].detach(), root)
                with torch.no_grad():
                    for other in mine[1:]:
                        other.copy_(mine[0])
                self.groups.append((list(dict.fromkeys(mine)), some))

    def begin(self) -> list:
        """Put aside what gradients there are; returns them for `finish`."""
        before = [[p.grad for p in parameters] for parameters, _ in self.groups]
        for parameters, _ in self.groups:
            for parameter in parameters:
                parameter.grad = None
        return before

    def finish(self, before):
        """Give each copy the sum of all copies' gradients, on top of what it had.

        Cost: an all-reduce of each weight, among the ranks that have a copy.
        """
        for (parameters, comm), earlier in zip(self.groups, before):
            found = [p.grad for p in parameters if p.grad is not None]
            total = sum(found[1:], found[0]).clone() if found else torch.zeros_like(parameters[0])
            all_reduce(comm, total)
            for parameter, grad in zip(parameters, earlier):
                if parameter.requires_grad:
                    parameter.grad = total.clone() if grad is None else grad.add_(total)


def _parameter(module, stage, name):
    try:
        return module.get_parameter(name)
    except AttributeError:
        raise ValueError(f"stage {stage} has no parameter {name!r} to be tied") from None
