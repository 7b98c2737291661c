"""Learn from batches of thousands: scale the rate, warm it up, or fit it to every layer.

`linear_scaled` and `sqrt_scaled` give the rate of a larger batch, `warm_up` the way there,
`linear_decay` the way back; `LARS` and `LAMB` are torch optimisers whose steps are in proportion to
the weights; `groups` says which parameters are decayed and which of them get a rate of their own.
Where a rank has but a part of a parameter, `norms` finds those of the whole.
"""

import functools
import re

import torch
from torch import nn

KINDS = ("weight", "bias", "norm")
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def linear_scaled(rate, batch, reference=256):
    """k times the batch, k times the rate.  Source: Goyal et al. 2017."""
    return rate * batch / reference


def sqrt_scaled(rate, batch, reference=256):
    """k times the batch, sqrt(k) times the rate: the steps' noise stays as it was.

    Source: Krizhevsky 2014.
    """
    return rate * (batch / reference) ** 0.5


def warm_up(first, peak, steps):
    """The rate of step t = 0, 1, ...: from `first` by equal amounts to `peak` at `steps`.

    Source: Goyal et al. 2017 (gradual warm-up, over about five epochs).
    """
    if steps < 1:
        raise ValueError(f"a warm-up takes at least 1 step, not {steps}")
    return lambda t: first + (peak - first) * min(t, steps) / steps


def linear_decay(peak, steps, warm=0, first=0.0):
    """The rate of step t = 0, 1, ...: up from `first` to `peak` in `warm` steps, then by equal
    amounts down to 0 at `steps`."""
    up = warm_up(first, peak, max(warm, 1))
    return lambda t: up(t) if t < warm else peak * (steps - t) / (steps - warm)


def groups(module, weight_decay, *, decayed=("weight",), adapted=("weight",)) -> list[dict]:
    """Parameter groups for `LARS` and `LAMB`: which kinds are decayed, which get their own rate.

    A parameter is a weight, a bias, or part of a norm (scale and shift of a normalisation); the two
    choices are apart.  Raises ValueError for an unknown kind.
    """
    for kind in (*decayed, *adapted):
        if kind not in KINDS:
            raise ValueError(f"a kind of parameter is one of {', '.join(KINDS)}, not {kind!r}")
    by_kind = {kind: [] for kind in KINDS}
    for name, parameter in module.named_parameters():
        by_kind[_kind(module, name)].append(parameter)
    return [
        {"params": params, "adapt": kind in adapted,
         "weight_decay": weight_decay if kind in decayed else 0.0}
        for kind, params in by_kind.items() if params
    ]  # fmt: skip


def _kind(module, name) -> str:
    """Of a parametrized tensor: its own, whatever parameters it is made from."""
    owner, _, last = re.sub(r"parametrizations\.(\w+)\.original\d*$", r"\1", name).rpartition(".")
    if isinstance(module.get_submodule(owner), NORMS):
        return "norm"
    return "bias" if "bias" in last.split("_") else "weight"  # an LSTM's: bias_ih_l0


def vector_norms(parameter, *tensors) -> list:
    """The norm of each of some tensors [that of `parameter`], such as its gradient; of halves in
    float32."""
    wide = torch.float32 if parameter.dtype in (torch.float16, torch.bfloat16) else None
    return [torch.linalg.vector_norm(x, dtype=wide) for x in tensors]


class _Adaptive(torch.optim.Optimizer):
    """What both have in common: checks, the loop over parameters, and the ratio of norms."""

    def __init__(self, params, norms, **defaults):
        for name, value in defaults.items():
            if name == "betas" and not all(0 <= beta < 1 for beta in value):
                raise ValueError(f"betas lie from 0 to below 1, not {value}")
            if name != "betas" and value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, but is {value}")
        super().__init__(params, defaults)
        self.norms = norms

    @torch.no_grad()
    def step(self, closure=None):
        """One step; parameters without a gradient stay as they are."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None and x.grad.is_sparse:
                    raise ValueError(f"{type(self).__name__} has no step for a sparse gradient")
                if x.grad is not None:
                    norms = functools.partial(self.norms, x)
                    self._update(_as_real(x), _as_real(x.grad), self.state[x], group, norms)
        return loss

    def __getstate__(self):
        return {**super().__getstate__(), "norms": self.norms}


def _as_real(x):
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def _ratio(weights, update, floor):
    """|weights| / |update|, 1 where either is 0: weights of zero must be able to move."""
    return torch.where((weights > 0) & (update > 0), weights / update.clamp(min=floor), 1.0)


class LARS(_Adaptive):
    """Each layer's step is `trust` times as long as its weights, whatever its gradient's scale.

    lambda = trust |w| / (|g| + decay |w|); v <- m v + lr lambda (g + decay w); w <- w - v, with
    m = momentum; if `corrected`, times lr / (the last lr), which is the same as a velocity without
    the rate: v <- m v + lambda (g + decay w); w <- w - lr v.  lambda is 1 where w or the divisor is
    0, where a group says adapt=False, and everywhere with trust=None: SGD with the rate in its
    velocity.
    `floor` is the smallest divisor; `norms(parameter, *tensors)` finds the norms of w and g.
    Raises ValueError for numbers below 0 and sparse gradients.
    Source: You, Gitman & Ginsburg 2017; the correction: Goyal et al. 2017, remark 2.
    """

    def __init__(self, params, lr, *, momentum=0.9, weight_decay=0.0, trust=0.001, floor=1e-8,
                 corrected=False, adapt=True, norms=vector_norms):  # fmt: skip
        super().__init__(params, norms, lr=lr, momentum=momentum, weight_decay=weight_decay,
                         trust=trust, floor=floor, corrected=corrected, adapt=adapt)  # fmt: skip

    def _update(self, x, gradient, state, group, norms):
        decay, lr, momentum = group["weight_decay"], group["lr"], group["momentum"]
        step = gradient.add(x, alpha=decay) if decay else gradient.clone()
        if group["adapt"] and group["trust"] is not None:
            weights, gradients = norms(x, gradient)
            divisor = gradients + decay * weights
            ratio = _ratio(group["trust"] * weights, divisor, group["floor"])
            step.mul_(ratio.to(step.dtype))
        if not group["corrected"]:
            step.mul_(lr)
        if momentum and "velocity" in state:
            step.add_(state["velocity"], alpha=momentum)
        if momentum:
            state["velocity"] = step
        x.sub_(step, alpha=lr if group["corrected"] else 1)


class LAMB(_Adaptive):
    """Adam whose step is as long as the layer's weights, times lr.

    u = m^ / (sqrt(v^) + eps) + decay w; w <- w - lr (|w| / |u|) u, the ratio 1 where a norm is 0
    or a group says adapt=False.  Raises as LARS does.  Source: You et al. 2019.
    """

    def __init__(self, params, lr=1e-3, *, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0,
                 floor=1e-8, adapt=True, norms=vector_norms):  # fmt: skip
        super().__init__(params, norms, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                         floor=floor, adapt=adapt)  # fmt: skip

    def _update(self, x, gradient, state, group, norms):
        (first, second), step = group["betas"], state.get("step", 0) + 1
        if step == 1:
            state["mean"], state["square"] = torch.zeros_like(x), torch.zeros_like(x)
        state["step"] = step
        mean = state["mean"].lerp_(gradient, 1 - first)
        square = state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = square.div(1 - second**step).sqrt_().add_(group["eps"])
        update = mean.div(1 - first**step).div_(scale).add_(x, alpha=group["weight_decay"])
        if group["adapt"]:
            update.mul_(_ratio(*norms(x, update), group["floor"]).to(update.dtype))
        x.sub_(update, alpha=group["lr"])
