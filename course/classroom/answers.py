"""What the checks of many exercises need: run an answer on ranks, say what its tensors hold.

`on_ranks` runs it; `function` and `number` refuse what cannot be an answer; `held` puts in words
which rank's numbers a tensor holds.
"""

import math

import torch

from course.classroom.limits import suspended
from course.classroom.problems import Wrong
from course.comm import Trace
from course.worlds import RankError, processes, run

PATIENCE_S = 5.0  # for one blocked operation of an answer
LIMIT_S = 60.0  # for a run of an answer
EMPTY = -1.0  # what the places that an answer has to fill hold before


def on_ranks(fn, ranks: int, *args, nodes=None) -> tuple[list, Trace]:
    """The values of `fn(comm, *args)` on each of `ranks` CPU ranks, which pose as being on `nodes`,
    and the messages they sent.

    Ranks are checked, so an answer that relies on a message being buffered waits, and is caught.
    Raises RankError as `run` does.
    """
    trace, world = Trace(), processes(nodes, device="cpu", oversubscribe=True)
    bounds = {"timeout": PATIENCE_S, "limit": LIMIT_S}
    try:
        with suspended():
            return run(fn, ranks, *args, on=world, trace=trace, **bounds), trace
    except RankError as trouble:
        trouble.add_note(f"on {ranks} rank{'s' * (ranks > 1)}")
        raise


def function(answer):
    """`answer`, if it is one that can be called.  Raises Wrong otherwise."""
    if not callable(answer):
        raise Wrong(f"a function is wanted, without calling it, not {answer!r:.40}.")
    return answer


def number(answer) -> float:
    """`answer` as a number.  Raises Wrong if it is none."""
    try:
        value = float(answer)
    except (TypeError, ValueError):
        raise Wrong(f"a number is wanted, not {answer!r:.40}.") from None
    if math.isnan(value):
        raise Wrong("a number is wanted, and nan says that it is none.")
    return value


def held(x: torch.Tensor, rank: int, everyones: list) -> str:
    """In words, which rank's tensor of `everyones` the tensor `x` of `rank` holds."""
    sources = [source for source, other in enumerate(everyones) if torch.equal(x, other)]
    if not sources:
        return "nothing yet" if (x == EMPTY).all() else "a mixture"
    return "its own x" if sources[0] == rank else f"the x of rank {sources[0]}"


def check_filled(x, returned, wanted):
    """Raises Wrong if the answer stands in what a function returned, and not in `x`."""
    if torch.equal(x, wanted) or not isinstance(returned, torch.Tensor):
        return
    if returned.shape == wanted.shape and torch.allclose(returned.to(wanted), wanted, 1e-4, 1e-4):
        raise Wrong("x itself has to change: do not return another tensor.")
