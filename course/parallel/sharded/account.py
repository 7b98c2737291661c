"""What training takes: bytes of memory a rank, by formula and as they are; bytes sent a step.

Source: Rajbhandari et al. 2019, section 5: 2 + 2 + K bytes a parameter (K = 12 for Adam with
float32 masters of half-type weights), of which stage 1 divides K by p, 2 the gradient too, 3 all.
"""

from typing import NamedTuple

from course.collectives import cost
from course.parallel.data.buckets import COUNTS

DIGEST_BYTES = 16  # by which stage 3 compares the ranks' ways through the units


class Account(NamedTuple):
    """Bytes on a rank: of weights, of gradients between backward and step, and of what only the
    optimizer needs: its state, and float32 masters."""

    weights: float
    gradients: float
    optimizer: float


def account(elements, p, stage, *, weight_bytes=2, gradient_bytes=2, optimizer_bytes=12) -> Account:
    """The bytes of a model of so many elements on each of p ranks, in stage 0 (DataParallel) to 3.

    Ours has less in stage 3 where there are masters: 2/p bytes a parameter, since the rank's part
    of the weights is rounded from its masters when it is wanted.
    """
    parts = weight_bytes, gradient_bytes, optimizer_bytes
    shards = (3, 2, 1)  # the stage from which on each is sharded
    return Account(
        *[elements * n / (p if stage >= first else 1) for n, first in zip(parts, shards)]
    )


def live_bytes(net, optimizer) -> Account:
    """The bytes of the memory that `net`, a Sharded, and its `optimizer` hold at this moment."""
    weights = _storages(flat.whole for flat in net.flats)
    gradients = _storages(
        bucket.flat for bucket in net.reducer.layout.buckets if bucket.flat is not None
    )
    own = _storages(shard for shard in net.shards.values())
    for x in (*net.module.parameters(), *net.shards.values()):
        gradients |= {} if x.grad is None else _storages([x.grad])
    state = _storages(x for kept in optimizer.state.values() for x in kept.values()
                      if hasattr(x, "untyped_storage"))  # fmt: skip
    masters = _storages(flat.own for flat in net.flats if flat.mastered)
    weights |= {key: nbytes for key, nbytes in own.items() if key not in masters}
    return Account(*[sum(found.values()) for found in (weights, gradients, state | masters)])


def step_cost(net, backwards: int = 1) -> cost.Cost:
    """What every rank sends in one of the later steps of `net`, if each backward goes through one
    forward, and finds a gradient for every bucket.

    A reduce-scatter of each bucket, before it an all-reduce of what its gradients weigh; an
    all-gather of the weights after the step, or, in stage 3, whenever a unit is entered for which
    it was not kept, and a word on the order.  Messages longer than a segment are counted as one.
    """
    p, trained, calls = net.comm.size, [flat for flat in net.flats if flat.trained], []
    for flat in trained:
        parts = [len(piece) * flat.whole.element_size() for piece in flat.pieces]
        weighs = (len(flat.views) + COUNTS) * max(4, flat.whole.element_size())
        calls += [cost.recursive_doubling_all_reduce(p, weighs)] * backwards
        calls += [cost.reduce_scatter(parts)] * backwards
    gathered = trained if net.stage < 3 else _entered(net.gathering) * backwards
    calls += [cost.all_gather([piece.nbytes for piece in flat.pieces]) for flat in gathered]
    if net.stage == 3:
        calls += [cost.recursive_doubling_all_reduce(p, DIGEST_BYTES)] * backwards
    total = calls[0]
    for call in calls[1:]:
        total = total.then(call)
    return total


def _entered(gathering) -> list:
    """What is gathered in a later step, in order: not a unit that was kept since its forward."""
    order, flats = gathering.order, []
    for number, (_, unit) in enumerate(order):
        phase, before = order[number - 1] if number else ("", None)
        if phase != "forward" or before.module not in unit.within:
            flats += unit.flats
    return flats


def _storages(tensors) -> dict:
    """{memory: its bytes} of some tensors, each once."""
    memories = (x.untyped_storage() for x in tensors)
    return {memory._cdata: memory.nbytes() for memory in memories}
