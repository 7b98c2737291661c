"""Data parallel: every rank holds the whole model and its own part of the batch.

`DataParallel` averages gradients in buckets, each sent as soon as backward has filled it, so that
most of the network's time passes behind backward's; after `loss.backward()` every rank has the
gradient of the whole batch.  `average_weights` is the other variant: step alone, then average.
Source: Dean et al. 2012 (the idea); Li et al. 2020, «PyTorch Distributed» (buckets, overlap).
"""

import contextlib
import functools
import math

import torch
from torch import nn

from course.collectives import all_reduce
from course.parallel.data.averaging import Averaging
from course.parallel.data.buckets import Layout, cut_into_buckets
from course.parallel.data.reducer import Reducer
from course.parallel.data.samples import count_samples, tensors_in
from course.parallel.flat_parameters import broadcast_module


class Wrapper(nn.Module):
    """`module` on all ranks alike, whose backwards are known to a `reducer`: from which forward
    they come, and how many samples that had.  Raises ValueError where the ranks' models differ."""

    def __init__(self, module, comm, bucket_mb, op="mean"):
        super().__init__()
        if not bucket_mb > 0:
            raise ValueError(f"a bucket holds more than 0 MB, not {bucket_mb}")
        if any(isinstance(part, Wrapper) for part in module.modules()):
            name = type(self).__name__
            raise ValueError(f"{name} goes round a module once, not round another one")
        self.module, self.comm, self.op, self.reducer = module, comm, op, None
        broadcast_module(comm, module)

    def forward(self, *args, samples=None, **kwargs):
        """What module gives; `samples` [default: the rows of its inputs] weigh its gradient.

        Raises RuntimeError after a backward that broke off in the middle of its messages, and
        ValueError where the inputs do not tell how many samples they are.
        """
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        passed = _passed_a_copy
        if self.reducer:
            self.reducer.require_whole()
            samples = self._samples(samples, args, kwargs)
            passed = functools.partial(self.reducer.passed, object(), samples)
        out = self.module(*args, **kwargs)
        for tensor in tensors_in(out):
            if tensor.grad_fn is not None:
                tensor.register_hook(passed)
        return out

    def _samples(self, samples, args, kwargs) -> float:
        if samples is None:
            return count_samples(self.module, args, kwargs) if self.op == "mean" else 1
        if not 0 <= samples < math.inf:
            raise ValueError(f"samples is how many there are, 0 or more, not {samples}")
        return float(samples)

    @contextlib.contextmanager
    def no_sync(self):
        """Backward in here only accumulates; the next one outside sends what has gathered."""
        before, self.reducer.sync = self.reducer.sync, False
        try:
            yield
        finally:
            self.reducer.sync = before

    def __getstate__(self):
        """All but what joins this rank to the others."""
        return {**super().__getstate__(), "comm": None, "reducer": None}


class DataParallel(Wrapper):
    """`module`, whose gradients are those of the batches of all ranks together.

    Each backward's gradient counts as many times as the forwards that it goes through had samples,
    on average; one that goes through none counts once on every rank, as all do in torch's.
    Buckets hold `bucket_mb` megabytes; `op` is mean over samples, or sum over ranks.  `hook(comm,
    bucket)`, if given, takes the place of all_reduce (see `compression.py`).  Batch norms see their
    own rank's samples, and buffers go their own ways, until `average_buffers`.  Hooks of parameters
    see the gradient of their own rank.  A copy, and what is loaded, is not averaged any more.

    Cost of a backward: the gradients' bytes through one all-reduce a bucket.
    Raises ValueError where the ranks' models differ; after backward, FloatingPointError for a
    gradient that is not finite: on which rank, of which parameter.  With `require_finite=False` it
    is left in place on all ranks, as a GradScaler wants it.
    """

    def __init__(self, module, comm, *, bucket_mb=4, algorithm="ring", op="mean", hook=None,
                 require_finite=True):  # fmt: skip
        if op not in ("mean", "sum"):
            raise ValueError(f"op must be mean or sum, not {op!r}")
        super().__init__(module, comm, bucket_mb, op)
        if algorithm == "native" and comm.native:  # to start it takes all ranks, and not backward
            comm.submit(lambda background: background.native).wait()
        layout = Layout(module, bucket_mb * 1e6, wide=hook is not None)
        averaging = Averaging(op == "mean", algorithm, hook)
        self.reducer = Reducer(comm, layout, averaging, require_finite)


def _passed_a_copy(gradient):
    raise RuntimeError(
        "this DataParallel is a copy, or was loaded, and its gradients are not averaged: train "
        "DataParallel(copy.module, comm)"
    )


def average_weights(module, comm):
    """The mean over ranks of all parameters of `module`, in place, on all ranks.

    Cost: one all-reduce of the model for each of its dtypes.
    """
    parameters = sorted(module.parameters(), key=lambda p: str(p.dtype))
    for bucket in cut_into_buckets(parameters, math.inf):
        for parameter in bucket.parameters:
            bucket.view(parameter).copy_(parameter.detach())
        all_reduce(comm, bucket.values, "mean")
        for parameter in bucket.parameters:
            parameter.detach().copy_(bucket.view(parameter))


def average_buffers(module, comm):
    """The mean over ranks of the floating-point buffers of `module` (batch norms' statistics)."""
    for buffer in module.buffers():
        if buffer.is_floating_point():
            all_reduce(comm, buffer, "mean")
