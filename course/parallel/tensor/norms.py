"""Norms of parameters that are cut: squares are added up over the ranks of the cut, and what all
ranks have alike counts once.

Of a cut parameter alone, its part's norm makes every rank's LARS or LAMB step another one.
"""

import torch
from torch import nn

from course.collectives import all_reduce
from course.learning.training.large_batch import vector_norms
from course.parallel.tensor.cut import CutLayer


def _groups(module) -> dict:
    """{parameter: the communicator over which it is cut, or None}."""
    groups = dict.fromkeys(module.parameters())
    for layer in module.modules():
        if isinstance(layer, CutLayer):
            groups |= {getattr(layer, name): layer.comm for name in layer.cut}
    return groups


def whole_norms(module):
    """What `LARS` and `LAMB` take as `norms`, for the parameters of a module with cut layers.

    Cost: for each cut parameter an all-reduce of two numbers a step.  What it returns raises
    ValueError for a parameter that the module did not have.
    """
    groups = _groups(module)

    def norms(parameter, *tensors) -> list:
        if parameter not in groups:
            raise ValueError("norms are those of the parameters that the module had: not of one "
                             f"of shape {list(parameter.shape)}")  # fmt: skip
        found, comm = vector_norms(parameter, *tensors), groups[parameter]
        return found if comm is None else list(_over_ranks(comm, torch.stack(found)))

    return norms


def _over_ranks(comm, norms) -> torch.Tensor:
    """The norms of wholes of whose parts these are the norms."""
    squares = norms.double().square()
    all_reduce(comm, squares, algorithm="recursive_doubling")
    return squares.sqrt().to(norms.dtype)


@torch.no_grad()
def grad_norm(module) -> torch.Tensor:
    """The norm of all gradients of a module with cut layers, as one vector; equal on all ranks.

    A parameter without a gradient counts as zero.  Cost: an all-reduce of a number.
    """
    of_group = {}
    for parameter, comm in _groups(module).items():
        if parameter.grad is not None:
            of_group.setdefault(comm, []).extend(vector_norms(parameter, parameter.grad))
    totals = {comm: torch.linalg.vector_norm(torch.stack(norms))
              for comm, norms in of_group.items()}  # fmt: skip
    totals = [norm if comm is None else _over_ranks(comm, norm) for comm, norm in totals.items()]
    return torch.linalg.vector_norm(torch.stack(totals)) if totals else torch.zeros(())


def clip_grad_norm(module, max_norm: float) -> torch.Tensor:
    """Scale all gradients so that their norm is `max_norm` at most; returns what it was.

    Cost: that of `grad_norm`.
    """
    total = grad_norm(module)
    nn.utils.clip_grads_with_norm_(module.parameters(), max_norm, total)
    return total
