"""The reducer: it fills buckets as backward finds gradients, and sends each as soon as it is full.

`passed` hears of every output of a forward that a backward comes by, `ready` of every parameter
whose gradient is accumulated; when backward is over, the means are waited for and handed out.
"""

import functools
import math
import weakref

import torch
from torch.autograd import Variable

from course.parallel.data.agreement import blame, require_weights
from course.parallel.data.backward import Backward

REDUCERS = weakref.WeakKeyDictionary()  # by communicator: those that were made on it so far


class Reducer:
    """Gives the parameters of `layout` the same gradients on all ranks of `comm`.

    While `sync` is false it only notes what was gathered; the next backward sends it.  No more than
    `in_flight` buckets are on their way at a time: backward waits for the first of them.
    """

    def __init__(self, comm, layout, averaging, require_finite, *, in_flight=math.inf):
        self.layout, self.averaging, self.require_finite = layout, averaging, require_finite
        self.in_flight = in_flight
        self.sync, self.unsent, self.backward, self._end = True, [], None, None
        self.summed = {}  # by parameter: the gradient that was given a sum over ranks, its version
        self.comm = self._apart(comm)
        arrived = functools.partial(_arrived, weakref.ref(self))
        for parameter in layout.names:
            trained = parameter.requires_grad
            parameter.requires_grad_(True)  # what is frozen now may be trained later
            parameter.register_post_accumulate_grad_hook(arrived)
            parameter.requires_grad_(trained)

    def _apart(self, comm):
        """The first reducer has `comm` itself, others one each: two models' buckets may be full in
        another order on another rank, and one background does its calls in one order."""
        earlier = REDUCERS.setdefault(comm, [])
        earlier.append(weakref.ref(self))
        return comm if len(earlier) == 1 else comm.split(0)

    def passed(self, forward, rows, gradient):
        """A backward has come by an output of `forward`, of so many `rows`."""
        self._now().rows[forward] = rows

    def ready(self, parameter):
        """Backward has accumulated the gradient of `parameter`: it will not change any more."""
        backward, gradient = self._now(), parameter.grad
        bucket = self.layout.bucket_of.get(parameter)
        if not backward.rows and self._is_for_another(parameter):
            return
        if (
            parameter in backward.arrived
            or gradient.requires_grad
            or gradient.layout is not torch.strided
            or bucket is None
            and backward.sync
        ):
            self._refuse(parameter, backward)
        if backward.sync:
            self._fill(bucket, parameter)
            gradient = parameter.grad  # a bucket may have taken it away
        backward.arrived[parameter] = gradient is not None and (
            gradient._version, parameter._version
        )  # fmt: skip
        if backward.sync and len(bucket.filled) == len(bucket.parameters):
            self._send()

    def _now(self) -> Backward:
        """What is known of the backward that goes on; the first call in it begins the account."""
        if self._end is None or self._end() is None:
            self.require_whole()
            self.require_cleared()
            self.unsent = [earlier for earlier in self.unsent if earlier.kept]
            if self.sync:
                self.layout.refresh(self.comm)
            end = functools.partial(self._finish)  # kept by autograd alone, as long as it runs
            self.backward, self._end = Backward(self.sync), weakref.ref(end)
            Variable._execution_engine.queue_callback(end)
        return self.backward

    def require_whole(self):
        """Raise RuntimeError if a backward broke off in the middle of its messages."""
        broken = self.backward and self._end() is None and self.backward.sync
        if broken and self.backward.arrived:
            raise RuntimeError(
                f"rank {self.comm.rank}: the last backward broke off when some of its gradients "
                "were sent; the ranks are out of step, and training has to start anew"
            )

    def require_cleared(self):
        """Raise RuntimeError if a sum over ranks is still in a gradient, to be summed once more.
        (The mean of what all ranks have alike is what it was.)"""
        for parameter, (given, version) in self.summed.items():
            gradient = parameter.grad
            if gradient is not None and gradient is given() and gradient._version == version:
                raise RuntimeError(
                    f"rank {self.comm.rank}: the gradient of {self.layout.names[parameter]} still "
                    'holds the last sum over ranks, and op="sum" would count it once a rank: call '
                    "zero_grad() before each backward, or take the mean"
                )

    def _is_for_another(self, parameter) -> bool:
        """Whether this backward goes through another wrapper, which has the parameter too."""
        return any(other.backward and other.backward.rows for other in self.sharing(parameter))

    def sharing(self, parameter) -> list:
        """The other reducers that have the parameter, too."""
        made = [reference() for group in list(REDUCERS.values()) for reference in group]
        return [other for other in made
                if other and other is not self and parameter in other.layout.bucket_of]  # fmt: skip

    def _refuse(self, parameter, backward):
        gradient, name = parameter.grad, self.layout.names[parameter]
        if gradient.layout is not torch.strided:
            why = f"is {gradient.layout}, and must be dense: Embedding(sparse=False) makes it so"
        elif gradient.requires_grad:
            why = ("cannot be averaged and derived once more: take autograd.grad(..., "
                   "create_graph=True) for a penalty, and backward without it")  # fmt: skip
        elif parameter in backward.arrived:
            why = ("came twice in one backward: a parameter in several parts under checkpoint "
                   "needs checkpoint(use_reentrant=False)")  # fmt: skip
        else:
            why = "is there, but it was frozen before it was sent: freeze it later"
        raise RuntimeError(f"rank {self.comm.rank}: the gradient of {name} {why}")

    def _fill(self, bucket, parameter):
        if not bucket.filled:
            bucket.factor = self.averaging.factor(bucket, self._weights()[0])
        bucket.fill(parameter)

    def _weights(self) -> tuple[float, float, float]:
        """What this rank's gradients count; whether their backwards went through no forward; and
        whether they had different rows."""
        told = [backward.weight for backward in (*self.unsent, self.backward) if backward.rows]
        if not self.averaging.mean or not told:
            return 1.0, float(self.averaging.mean), 0.0
        return sum(told) / len(told), 0.0, float(len(set(told)) > 1)

    def _send(self, everything=False):
        """Begin to reduce the next buckets that are full, in the same order on all ranks."""
        begun, buckets = self.backward.begun, self.layout.buckets
        while len(begun) < len(buckets):
            bucket = buckets[len(begun)]
            if not (everything or bucket.full):
                break
            weight, *counts = self._weights()
            bucket.finalize(self.averaging.factor(bucket, weight), weight, *counts)
            begun.append(self.comm.submit(self.averaging, bucket))
            if len(begun) > self.in_flight:
                begun[-1 - self.in_flight].wait()

    def _finish(self):
        """Backward is over: send what is left, wait for all, hand the gradients out."""
        backward = self.backward
        if backward.sync and backward.arrived:
            for parameter in self._gathered(backward):
                self._fill(self.layout.bucket_of[parameter], parameter)
            self._send(everything=True)
            for future in backward.begun:
                future.wait()
        self.backward = self._end = None
        if len(backward.arrived) < len(self.layout.bucket_of):
            self.layout.check_unchanged()
        if not backward.sync and backward.arrived:
            self.unsent.append(backward)
        elif backward.arrived:
            self._hand_out(backward)

    def _gathered(self, backward) -> list:
        """What was used since the last gradients were sent, but not in this backward."""
        if not self.unsent:
            return []
        before = {p for earlier in self.unsent for p in earlier.arrived if p.grad is not None}
        for parameter in before - self.layout.bucket_of.keys():
            self._refuse(parameter, backward)
        return list(before - backward.arrived.keys())

    def _hand_out(self, backward):
        """Every rank has the sums: give them to the parameters, unless they would be wrong."""
        buckets, backwards, self.unsent = self.layout.buckets, [*self.unsent, backward], []
        require_weights(self.comm, buckets, backwards)
        self._require_untouched(backward)
        bad = {p: bucket.own_is_finite(p) for bucket in buckets if self.require_finite
               for p in bucket.not_finite()}  # fmt: skip
        for bucket in buckets:
            bucket.copy_out(self.averaging.divisor(bucket))
            if not self.averaging.mean and self.comm.size > 1:
                given = ((p, p.grad) for p in bucket.in_use)
                self.summed |= {p: (weakref.ref(grad), grad._version) for p, grad in given}
        if bad:
            blame(self.comm, self.layout.names, bad)
        self.layout.order(self.comm, backward.arrived)

    def _require_untouched(self, backward):
        """Raise RuntimeError if a hook behind ours changed a gradient or weight that is sent."""
        for parameter, versions in backward.arrived.items():
            gradient = parameter.grad
            now = gradient is not None and (gradient._version, parameter._version)
            if now != versions and not self.sharing(parameter):
                raise RuntimeError(
                    f"rank {self.comm.rank}: {self.layout.names[parameter]} or its gradient was "
                    "changed, by a hook for instance, when the mean over ranks was not there yet: "
                    "do it after backward"
                )


def _arrived(reference, parameter):
    """The hook of a parameter; it does not keep its reducer alive."""
    reducer = reference()
    if reducer is not None:
        reducer.ready(parameter)
