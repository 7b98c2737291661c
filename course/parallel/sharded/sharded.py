"""Sharded data parallel training, in the three stages of ZeRO; the third is today's FSDP.

Stage 1 shards the optimizer's state, stage 2 the mean gradient too, stage 3 the weights as well.
In all of them gradients are reduce-scattered in buckets while backward goes on, each rank's
optimizer changes its shard, and all-gathers bring the weights back: after the step (1, 2), or
whenever a unit is about to compute (3).
Source: Rajbhandari et al. 2019, «ZeRO»; Zhao et al. 2023, «PyTorch FSDP» (units, prefetch).
"""

import json
import math

import torch

from course.collectives import all_reduce
from course.parallel.data.averaging import Averaging
from course.parallel.data.buckets import group_neighbours
from course.parallel.data.data_parallel import Wrapper
from course.parallel.data.reducer import Reducer
from course.parallel.sharded.checkpoints import load_whole, whole_state
from course.parallel.sharded.flat_shards import FlatShards
from course.parallel.sharded.gathering import Gathering
from course.parallel.sharded.shard_optimizer import shard_optimizer
from course.parallel.sharded.sharded_buckets import ShardedBucket, ShardLayout, add_up_pieces
from course.parallel.sharded.units import choose_units

IN_FLIGHT = 2  # buckets whose memory is taken at a time, where it is given back


class Sharded(Wrapper):
    """`module`, trained as DataParallel does, with this rank's shards of what it takes.

    Stages 1 and 2 cut its parameters into buckets of `bucket_mb` megabytes; stage 3 into `units`
    (modules, or a rule that says of each whether it is one; by default the model's children), each
    of which is whole while it computes.  `shards` {name: this rank's part [elements, maybe none]}
    have the gradients after backward, and go to an optimizer by `optimizer`.  What DataParallel
    says of samples, weights, hooks and buffers is true here as well; buffers are whole on every
    rank.  Parameters of half types have float32 shards, from which they are rounded.  With
    `require_finite=False` a gradient that is not finite on some rank is nan on all of them, so that
    their GradScalers skip the same steps.

    Cost of a step: see `account.step_cost`; 2 model sizes in stages 1 and 2, 3 in stage 3.
    Raises ValueError where ranks have different models, stages, buckets or units; after backward
    FloatingPointError for a gradient that is not finite, as DataParallel does.
    """

    def __init__(self, module, comm, *, stage=3, units=None, bucket_mb=4, require_finite=True):
        if stage not in (1, 2, 3):
            raise ValueError(f"stage must be 1, 2 or 3, not {stage!r}; DataParallel shards nothing")
        if units is not None and stage < 3:
            raise ValueError(f"units are gathered in stage 3; stage {stage} has buckets")
        super().__init__(module, comm, bucket_mb)
        if not any(p.requires_grad for p in module.parameters()):
            raise ValueError(
                "there is nothing to shard: the model has no parameter that is trained"
            )
        chosen = choose_units(module, units) if stage == 3 else {}
        _check_alike(comm, stage, bucket_mb, [unit.name for unit in chosen])
        self.stage, self.flats = stage, []
        for unit, parameters in chosen.items():
            unit.flats = self._cut(_by_kind(parameters), math.inf, unit.name)
        if stage < 3:
            self._cut(_by_kind(reversed(list(module.parameters()))), bucket_mb * 1e6)
        layout = ShardLayout(module, [ShardedBucket(flat) for flat in self.flats])
        averaging = Averaging(True, "recursive_doubling", add_up_pieces)
        in_flight = math.inf if stage == 1 else IN_FLIGHT
        self.reducer = Reducer(comm, layout, averaging, require_finite, in_flight=in_flight)
        self.gathering = Gathering(comm, chosen) if stage == 3 else None

    def _cut(self, kinds, most_bytes, unit="") -> list:
        sentence = (
            f"rank {self.comm.rank}: weights of unit {unit or 'the model itself'!r} have values "
            "only within its forward and its backward: make a unit of the module that uses them"
        )
        flats = [FlatShards(group, self.comm, self.stage, sentence)
                 for kind in kinds for group in group_neighbours(kind, most_bytes)]  # fmt: skip
        self.flats += flats
        return flats

    @property
    def shards(self) -> dict:
        """{name: this rank's part of the parameter [elements]}, in the order of the module."""
        mine = {p: shard for flat in self.flats for p, shard in flat.shards.items()}
        return {name: mine[p] for name, p in self.module.named_parameters()}

    def forward(self, *args, **kwargs):
        """As DataParallel's.  Raises RuntimeError where parameters are not where they were."""
        if self.stage < 3:
            for flat in self.flats:
                flat.required_in_place(self.reducer.layout.names)
        return super().forward(*args, **kwargs)

    def optimizer(self, kind, options=None, **knobs):
        """`kind(shards, **knobs)`, an optimizer of torch or one's own, whose `step` brings the
        weights of all ranks up to date: it is called on all of them.

        options(name, parameter) -> {knob: value} for single ones.  Raises ValueError for an
        optimizer that is not element-wise: its own numbers depend on how tensors are cut.
        """
        return shard_optimizer(self, kind, options, knobs)

    def publish(self, frozen=False):
        """The shards have changed, perhaps `frozen` ones too: so do the weights of all ranks.
        Collective.

        Cost: an all-gather of these; in stage 3 nothing, until units compute.
        """
        changed = [flat for flat in self.flats if frozen or flat.trained]
        if self.stage == 3:
            self.gathering.drop()
        else:
            for future in [self.comm.submit(_gather, flat) for flat in changed]:
                future.wait()
        for p in (p for flat in changed for p in flat.views):
            torch.autograd.graph.increment_version(p)

    def grad_norm(self):
        """The 2-norm [] of the gradient of all ranks' shards together.

        Cost: an all-reduce of one number.
        """
        square = torch.zeros((), dtype=torch.float64, device=self.flats[0].own.device)
        for shard in self.shards.values():
            if shard.grad is not None:
                square += torch.linalg.vector_norm(shard.grad, dtype=_at_least_single(shard)) ** 2
        all_reduce(self.comm, square, algorithm="recursive_doubling")
        return square.sqrt_()

    def clip_grad_norm_(self, max_norm):
        """Scale the gradient so that its norm is `max_norm` at most; the norm [] that it had.

        As torch.nn.utils.clip_grad_norm_ on one process.  Cost: that of `grad_norm`.
        """
        norm = self.grad_norm()
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for shard in self.shards.values():
            if shard.grad is not None:
                shard.grad.mul_(scale)
        return norm

    def zero_grad(self, set_to_none=True):
        """Clear the gradients of shards, and what backwards within no_sync have gathered."""
        self.module.zero_grad()
        for shard in self.shards.values():
            if shard.grad is not None:
                shard.grad = None if set_to_none else shard.grad.zero_()

    def parameters(self, recurse=True):
        """Raises RuntimeError: neither the whole parameters nor the shards are what is meant."""
        raise RuntimeError(
            "parameters of Sharded have no gradients: net.optimizer(torch.optim.Adam, lr=...) "
            "makes an optimizer, net.clip_grad_norm_ clips, net.shards are what this rank trains"
        )

    def state_dict(self):
        """{name: tensor} as the whole module has it, with float32 for half types.  Collective."""
        return whole_state(self)["model"]

    def load_state_dict(self, state):
        """Make the weights and buffers those of such a `state`.  Collective."""
        load_whole(self, {"model": state})

    def __deepcopy__(self, memo):
        raise RuntimeError(
            "Sharded cannot be copied: load its state_dict() into a copy of the model"
        )

    def __reduce_ex__(self, protocol):
        raise RuntimeError(
            "Sharded cannot be pickled: save its state_dict(), or sharded_state(net)"
        )


def _gather(comm, flat):
    flat.gather(comm)


def _by_kind(parameters) -> list:
    """Parameters by dtype, and by whether they are trained."""
    kinds = {}
    for p in parameters:
        kinds.setdefault((p.requires_grad, p.dtype, p.device), []).append(p)
    return list(kinds.values())


def _at_least_single(x):
    return torch.promote_types(x.dtype, torch.float32)


def _check_alike(comm, *settings):
    """Raises ValueError where ranks were given different stages, sizes of buckets, or units."""
    everyone = comm.gather_texts(json.dumps(settings))
    for rank, theirs in enumerate(everyone):
        if theirs != everyone[0]:
            raise ValueError(
                "Sharded needs the same stage, bucket_mb and units on all ranks, not "
                f"{everyone[0]} on rank 0 and {theirs} on rank {rank}"
            )
