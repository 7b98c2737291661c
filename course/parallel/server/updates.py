"""Updates: how a parameter server changes its shard by a gradient, element by element.

An update is a function of the weights [elements], which it changes, the gradient [elements], its
state (a dict of tensors, empty at first, which it changes as well), and a factor of its rate.
"""

import torch


def sgd(rate: float):
    """w <- w - rate g.  Raises ValueError for a rate that is not above 0."""
    _positive(rate)

    def update(weights, gradient, state, factor):
        weights.sub_(gradient, alpha=rate * factor)

    return update


def adagrad(gamma: float):
    """w <- w - gamma g / sqrt(the sum of g squared so far, this one included), a rate for each
    element.  Raises ValueError for a gamma that is not above 0.

    Source: Duchi, Hazan & Singer 2011; on the server: Dean et al. 2012.
    """
    _positive(gamma)

    def update(weights, gradient, state, factor):
        if "squares" not in state:
            state["squares"] = torch.zeros_like(weights)
        squares = state["squares"].addcmul_(gradient, gradient)
        step = torch.where(squares > 0, gradient / squares.sqrt(), 0.0)
        weights.sub_(step, alpha=gamma * factor)

    return update


def slower_if_stale(staleness: int) -> float:
    """The factor 1 / staleness (1 if it is less than 2) of a rate.  Source: Zhang et al. 2015."""
    return 1 / max(1, staleness)


def _positive(rate):
    if not (isinstance(rate, int | float) and rate > 0):
        raise ValueError(f"a server's rate is a number above 0, not {rate!r}")
