"""Data parallel: every rank holds the whole model and its own part of the batch.

`DataParallel` averages gradients in buckets, each sent as soon as backward has filled it, so that
most of the network's time passes behind backward's; after `loss.backward()` every rank has the
gradient of the whole batch.  `average_weights` is the other variant: step alone, then average.
Source: Dean et al. 2012 (the idea); Li et al. 2020, «PyTorch Distributed» (buckets, overlap).
"""

import contextlib

import torch
from torch import nn

from course.collectives import all_gather, all_reduce, broadcast
from course.parallel.data.buckets import Bucket, cut_into_buckets
from course.parallel.flat_parameters import broadcast_module


class DataParallel(nn.Module):
    """`module`, whose gradients are those of the batches of all ranks together.

    Buckets hold `bucket_mb` megabytes; `op` is mean over samples, or sum over ranks.  `hook(comm,
    bucket)`, if given, takes the place of all_reduce: it leaves the sum over ranks in the bucket
    (see `compression.py`).  Batch norms see their own rank's samples, and buffers go their own
    ways, until `average_buffers`.

    Cost of a backward: the gradients' bytes through one all-reduce a bucket.
    Raises ValueError where the ranks' models differ, and, after backward, FloatingPointError for
    a gradient that is not finite: on which rank, of which parameter.
    """

    def __init__(self, module, comm, *, bucket_mb=4, algorithm="ring", op="mean", hook=None):
        super().__init__()
        if not bucket_mb > 0:
            raise ValueError(f"a bucket holds more than 0 MB, not {bucket_mb}")
        if op not in ("mean", "sum"):
            raise ValueError(f"op must be mean or sum, not {op!r}")
        self.module, self.comm, self.op, self.bucket_bytes = module, comm, op, bucket_mb * 1e6
        self.reduce = hook or (lambda comm, it: all_reduce(comm, it.flat, algorithm=algorithm))
        self.names = {p: name for name, p in module.named_parameters()}
        broadcast_module(comm, module)
        self.samples, self.backwards, self.together = 0, 0, True
        self.arriving, self.begun, self.underway, self.ordered = [], [], False, False
        self.gathered = set()
        self._cut(list(reversed([p for p in self.names if p.requires_grad])))
        for parameter in self.names:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._ready)

    def forward(self, *args, samples=None, **kwargs):
        """What module gives; `samples` [default: the first argument's rows] weigh its gradient.

        Raises RuntimeError after a backward that broke off in the middle of its messages.
        """
        if self.underway:
            raise RuntimeError(
                f"rank {self.comm.rank}: the last backward broke off when some of its gradients "
                "were sent; the ranks are out of step, and training has to start anew"
            )
        if torch.is_grad_enabled():
            self.samples += len(args[0]) if samples is None else samples
            self.backwards += 1
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Backward in here only accumulates; the next one outside sends what has gathered."""
        before, self.together = self.together, False
        try:
            yield
        finally:
            self.together = before

    def _cut(self, parameters):
        self.buckets = cut_into_buckets(parameters, self.bucket_bytes)
        self.home = {p: bucket for bucket in self.buckets for p in bucket.parameters}

    def _ready(self, parameter):
        """Backward has accumulated the gradient of `parameter`: it will not change any more."""
        if not self.together:
            self.gathered.add(parameter)
            return
        if not self.underway:
            self.underway, self.begun, self.arriving = True, [], []
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self.arriving.append(parameter)
        self.home[parameter].fill(parameter, self._weight())
        self._send(lambda bucket: bucket.full)

    def _weight(self):
        """What this rank's gradient counts: its samples in a backward, on average."""
        return self.samples / max(1, self.backwards) if self.op == "mean" else 1.0

    def _send(self, ready):
        """Begin to reduce the next buckets, in the same order on all ranks."""
        while len(self.begun) < len(self.buckets) and ready(self.buckets[len(self.begun)]):
            bucket = self.buckets[len(self.begun)]
            bucket.seal(self._weight())
            self.begun.append(self.comm.submit(self.reduce, bucket))

    def _finish(self):
        """Backward is over: send what is left, wait for all, hand the gradients back."""
        self.underway = False
        for parameter in self.gathered.difference(self.arriving):  # used before this backward alone
            self.home[parameter].fill(parameter, self._weight())
        self.gathered.clear()
        self._send(lambda bucket: True)
        for handle in self.begun:
            handle.wait()
        bad = [p for bucket in self.buckets for p in bucket.hand_back(self.op == "mean")]
        self.samples = self.backwards = 0
        self._refuse_not_finite(bad)
        if not self.ordered:
            self._reorder()

    def _reorder(self):
        """From now on buckets follow the order in which rank 0's first backward came by."""
        numbers = {p: number for number, p in enumerate(self.home)}
        rest = [p for p in self.home if p not in set(self.arriving)]
        order = torch.tensor([numbers[p] for p in (*self.arriving, *rest)], device="cpu")
        broadcast(self.comm, order)
        parameters, self.ordered = list(self.home), True
        self._cut([parameters[number] for number in order.tolist()])

    def _refuse_not_finite(self, bad):
        """All ranks see that the sum is not finite; together they find out whose part was not."""
        if not bad:
            return
        mine = torch.tensor([self.home[p].was_finite[p] for p in bad])
        everyone = [torch.empty_like(mine) for _ in range(self.comm.size)]
        all_gather(self.comm, everyone, mine)
        told = [f"that of {self.names[p]} on rank {rank}" for rank, fine in enumerate(everyone)
                for p, ok in zip(bad, fine.tolist()) if not ok]  # fmt: skip
        whose = ", ".join(told[:4]) or f"only the sum of {self.names[bad[0]]}, which overflowed"
        raise FloatingPointError(f"gradients must be finite: not so {whose}")


def average_weights(module, comm):
    """The mean over ranks of all parameters of `module`, in place, on all ranks.

    Cost: one all-reduce of the model.
    """
    parameters = list(module.parameters())
    bucket = Bucket(parameters)
    for parameter in parameters:
        bucket.place(parameter).copy_(parameter.detach())
    all_reduce(comm, bucket.values, "mean")
    for parameter in parameters:
        parameter.detach().copy_(bucket.place(parameter))


def average_buffers(module, comm):
    """The mean over ranks of the floating-point buffers of `module` (batch norms' statistics)."""
    for buffer in module.buffers():
        if buffer.is_floating_point():
            all_reduce(comm, buffer, "mean")
