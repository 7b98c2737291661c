"""Elastic averaging: workers go their own ways, tied to a centre by a spring.

`ElasticAveraging` is the worker's side: EASGD, with momentum EAMSGD.  At the spring's other end is
the centre of `centre.py`, which all meet at once, or that of `served_centre.py`, which each meets
when it likes; `stability.py` says how stiff the spring may be.
Source: Zhang, Choromanska & LeCun 2015.
"""

import warnings
from numbers import Real

import torch

from course.comm.counts import required_count
from course.parallel.elastic.stability import largest_alpha
from course.parallel.flat_parameters import FlatParameters, broadcast_module

ORDERS = "before", "after"


class ElasticAveraging:
    """`module` on every worker, pulled towards a `centre` at every `tau`-th step.

    At such a step  x <- x - rate g - alpha (x - c),  c <- c + the sum of workers' alpha (x - c).
    Momentum m: v <- m v - rate g, x <- x + v, and the gradient g is that at x + m v, where the
    module is between steps; its parameters become parts of one tensor (see `flat_parameters.py`).

    One of three says how stiff the spring is: `alpha`, `rho` = alpha / rate, or `beta` = workers
    alpha, the part of the way to their mean that the centre goes.  `order`: the force is that on
    x "before" the rate's step, as the paper has it, or "after" it: then meetings are at the ends of
    steps tau, 2 tau, ..., else at steps 0, tau, ...  `prefetch`: so many steps earlier a served
    centre is asked for; it is as old then, and costs no time if it comes in the time of that many.

    After `backward()` call `step`; after the last, `finish`.  To evaluate take the centre, not a
    worker.  Buffers stay each worker's own (see `data.average_buffers`).
    Cost: that of the centre's meeting, every tau steps.  Raises ValueError for what cannot be;
    warns where alpha is too large for a bowl of `curvature` [default: flat].
    """

    def __init__(self, module, centre, *, alpha=None, rho=None, beta=None, tau=10, momentum=0.0,
                 order="before", prefetch=0, curvature=0.0):  # fmt: skip
        self.centre = centre
        self.stiffness = self._required({"alpha": alpha, "rho": rho, "beta": beta})
        required_count(tau, "tau", centre.comm.rank)
        self._require(order in ORDERS, f"order is one of {', '.join(ORDERS)}", order)
        self._require(prefetch in range(tau + 1), f"prefetch is 0 to tau, which is {tau}", prefetch)
        self._require(0 <= momentum < 1, "momentum is 0 or more and less than 1", momentum)
        self.tau, self.momentum, self.prefetch, self.curvature = tau, momentum, prefetch, curvature
        self.force_first, self.steps, self.warned = order == "before", 0, False
        self.weights = FlatParameters(module)
        broadcast_module(centre.comm, module, centre.root)
        centre.start(self.weights.flat)
        self.velocity = torch.zeros_like(self.weights.flat)
        self._look_ahead()

    def step(self, how):
        """Take a step with the module's gradient, and meet the centre if it is time to.

        `how` is a rate, or an optimiser of the module's parameters, which then steps in its own way
        (and has a momentum of its own, if any).  Raises ValueError for what is neither, or two
        momenta, RuntimeError for a module that was moved, cast or given other parameters, and what
        the centre's meeting does.
        """
        self.weights.required_in_place(self.centre.comm.rank)
        rate = self._rate(how)
        force = self._force(rate) if self.force_first else None
        self._move(how)
        self.steps += 1
        if not self.force_first:
            force = self._force(rate)
        if force is not None:
            self.weights.flat.sub_(force)
        self._look_ahead()

    def finish(self) -> torch.Tensor:
        """The centre [elements] in the end; a served one once all workers have finished."""
        return self.centre.finish()

    def alpha(self, rate) -> float:
        """The part of the way to the centre that a meeting pulls, at this rate."""
        name, value = self.stiffness
        return {"alpha": value, "rho": rate * value, "beta": value / self.centre.workers}[name]

    def _rate(self, how) -> float:
        if isinstance(how, Real):
            return how
        known = isinstance(how, torch.optim.Optimizer)
        self._require(known, "a step is taken with a rate or an optimiser", how)
        rule = "an optimiser has a momentum of its own, and then that given here is 0"
        self._require(self.momentum == 0, rule, self.momentum)
        return how.param_groups[0]["lr"]

    def _force(self, rate):
        """alpha (x - c) [elements] where it is time to meet: the centre is given as much."""
        if self.steps % self.tau:
            return None
        alpha = self.alpha(rate)
        self._warn(alpha, rate)
        force = torch.sub(self.weights.flat, self.velocity, alpha=self.momentum)
        force.sub_(self.centre.pull()).mul_(alpha)
        self.centre.push(force)
        return force

    def _move(self, how):
        """The rate's step from x + m v to the next x + m v."""
        if not isinstance(how, Real):
            return how.step()
        self.weights.flat.sub_(self.velocity, alpha=self.momentum)
        self.velocity.mul_(self.momentum)
        self.weights.add_gradient(self.velocity, -how)
        self.weights.flat.add_(self.velocity, alpha=1 + self.momentum)

    def _look_ahead(self):
        """Ask for the centre, if it will be needed in `prefetch` steps."""
        if self.prefetch and (self.steps + self.prefetch - self.force_first) % self.tau == 0:
            self.centre.prefetch()

    def _warn(self, alpha, rate):
        """Say once that the spring is too stiff."""
        count, together = self.centre.workers, self.centre.together
        bound = largest_alpha(rate * self.curvature, count if together else 1, self.tau)
        if alpha < bound or self.warned:
            return
        self.warned, who = True, f"{count} workers {'together' if together else 'in turn'}"
        warnings.warn(
            f"rank {self.centre.comm.rank}: alpha {alpha:.4g} is not below {bound:.4g}, where "
            f"{who}, every {self.tau} steps, no longer settle (rate times curvature "
            f"{rate * self.curvature:.4g})",
            stacklevel=4,
        )

    def _required(self, stiffness):
        """The one way, (name, value), in which it is said how stiff the spring is."""
        said = {name: value for name, value in stiffness.items() if value is not None}
        self._require(len(said) == 1, f"one of {', '.join(stiffness)} is given", said or None)
        ((name, value),) = said.items()
        self._require(value > 0, f"{name} is more than 0", value)
        return name, value

    def _require(self, holds, rule, value):
        if not holds:
            raise ValueError(f"rank {self.centre.comm.rank}: {rule}, not {value!r}")
