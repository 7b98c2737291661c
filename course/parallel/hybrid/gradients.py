"""Who sums which gradient with whom: a plan by the names of parameters, and what carries it out.

In data parallel everybody sums everything.  Where a network is cut, a gradient is summed over those
ranks alone that hold the same parameter: an expert's over its copies, never over other experts.

    plan = gradient_plan(net, comm, {"experts": grid["data"]})
    gradients = SummedGradients(net, plan)      kept as long as the net is trained
"""

import contextlib
import functools
import weakref
from typing import NamedTuple

from torch import nn

from course.parallel.data.data_parallel import DataParallel


class GradientGroup(NamedTuple):
    """The parameters `names`, whose gradients are summed over the ranks of `comm`."""

    comm: object
    names: tuple

    def __str__(self):
        ranks = ", ".join(map(str, self.comm.members))
        where = f"summed over ranks {ranks}" if self.comm.size > 1 else f"on rank {ranks} alone"
        return f"{', '.join(self.names)}: {where}"


def gradient_plan(module, comm, apart=None) -> list[GradientGroup]:
    """Which parameters of `module` are summed over which ranks: over those of `comm`, but for
    `apart` {the name of a submodule or parameter: its communicator}; the longest name decides.

    Raises ValueError for a name that no parameter has.
    """
    apart, found = {"": comm, **(apart or {})}, {}
    named = [name for name, _ in module.named_parameters()]
    for name in named:
        prefix = max((p for p in apart if _is_in(name, p)), key=len)
        found.setdefault(prefix, []).append(name)
    for prefix in apart:
        if prefix and not any(_is_in(name, prefix) for name in named):
            raise ValueError(
                f"rank {comm.rank}: gradients apart are those of a submodule or parameter, and "
                f"{prefix!r} is none of {', '.join(named)}"
            )
    return [GradientGroup(apart[prefix], tuple(found.get(prefix, ()))) for prefix in apart]


class SummedGradients:
    """From now on every backward of `module` leaves in each parameter the sum of its gradients over
    its group in `plan`, which begins with the parameters of the group's rank 0.

    So each rank's loss is its share of the whole: of samples, the sum over its own divided by the
    number of all.  Sums are formed in buckets while backward goes on, by DataParallel, as means of
    p times the gradients: what was summed before and is accumulated upon stays what it is.
    Cost of a backward: an all-reduce of each group's gradients.
    """

    def __init__(self, module, plan, *, bucket_mb=4, algorithm="ring"):
        parameters = dict(module.named_parameters())
        _require_once(plan, parameters)
        knobs = {"bucket_mb": bucket_mb, "algorithm": algorithm}
        self.parts = [DataParallel(_tree(group.names, parameters), group.comm, **knobs)
                      for group in plan if group.comm.size > 1 and group.names]  # fmt: skip
        for part in self.parts:
            for name, parameter in part.module.named_parameters():
                if part.reducer.sharing(parameter):
                    raise ValueError(f"rank {part.comm.rank}: {name} is summed over ranks already: "
                                     "let go of what does it before")  # fmt: skip
                self._multiply_gradient(parameter, part.comm.size)

    @contextlib.contextmanager
    def no_sync(self):
        """Backward in here only accumulates; the next one outside sends what has gathered."""
        with contextlib.ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.no_sync())
            yield

    def _multiply_gradient(self, parameter, factor):
        """Let each gradient of `parameter` be `factor` times as large, also once it is unfrozen."""
        trained = parameter.requires_grad
        parameter.requires_grad_(True)
        parameter.register_hook(functools.partial(_multiplied, weakref.ref(self), factor))
        parameter.requires_grad_(trained)


def _require_once(plan, parameters):
    seen = set()
    for group in plan:
        for name in group.names:
            if name not in parameters or name in seen:
                what = "in two groups" if name in seen else f"none of {', '.join(parameters)}"
                raise ValueError(f"rank {group.comm.rank}: a parameter is summed over one group, "
                                 f"and {name} is {what}")  # fmt: skip
            seen.add(name)


def _multiplied(reference, factor, gradient):
    """The hook of a parameter; like the reducer's, it ends with its object."""
    return None if reference() is None else factor * gradient


def _is_in(name, prefix) -> bool:
    return not prefix or name == prefix or name.startswith(f"{prefix}.")


def _tree(names, parameters) -> nn.Module:
    """Modules that hold these parameters, under their names, and nothing else."""
    root = nn.Module()
    for name in names:
        *path, leaf = name.split(".")
        place = root
        for part in path:
            if not hasattr(place, part):
                place.add_module(part, nn.Module())
            place = getattr(place, part)
        place.register_parameter(leaf, parameters[name])
    return root
