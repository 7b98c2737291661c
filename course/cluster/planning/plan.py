"""A plan of a training, as data: what is trained, on what, and how it is cut.

The same object is checked (`Plan` itself, `check_memory`, `overruns`), predicted by formula
(`estimate`), run on the imagined cluster (`simulated_step`) and on real ranks (`measured_step`).
"""

import dataclasses
import math
from typing import NamedTuple

from course.cluster.planning.nodes import NodeType
from course.cluster.planning.transformer import Transformer
from course.comm.counts import required_count
from course.parallel.pipeline import one_forward_one_backward
from course.parallel.sharded.account import Account, account

GIGA = 1e9
# The share of a card's memory that a plan leaves free: for what `memory` leaves out, which nobody
# has counted here.  10 to 20 % is a rule of thumb.
RESERVE = 0.15


@dataclasses.dataclass(frozen=True)
class Plan:
    """`nodes` servers of a kind train `network` with batches of `rows`: data x pipeline x tensor
    ranks, the tensor axis the fastest, so that each of its groups is in one server.

    A rank's rows go through the pipeline in `micro_batches`; with `sharded` the optimizer's state
    is divided over the data axis (stage 1 of ZeRO).  A checkpoint is written after every
    `interval_s` seconds of work.
    Raises ValueError for what cannot be: a sentence with the rule and the values.
    """

    network: Transformer
    node: NodeType
    nodes: int
    data: int = 1
    pipeline: int = 1
    tensor: int = 1
    rows: int = 256
    micro_batches: int = 1
    sharded: bool = False
    interval_s: float = 3600.0

    def __post_init__(self):
        for name in ("nodes", "data", "pipeline", "tensor", "rows", "micro_batches"):
            required_count(getattr(self, name), name)
        if refusal := _refusal(self):
            raise ValueError(refusal)

    @property
    def ranks(self) -> int:
        return self.nodes * self.node.cards

    @property
    def axes(self) -> dict:
        """For a Grid."""
        return {"data": self.data, "pipeline": self.pipeline, "tensor": self.tensor}

    @property
    def micro_rows(self) -> int:
        """Rows of a micro-batch."""
        return self.rows // (self.data * self.micro_batches)

    @property
    def activation_elements(self) -> int:
        """Numbers that go from block to block, of a micro-batch."""
        return self.micro_rows * self.network.length * self.network.features

    @property
    def schedule(self):
        return one_forward_one_backward(self.pipeline, self.micro_batches)

    def changed(self, **fields) -> "Plan":
        """The same with other `fields`."""
        return dataclasses.replace(self, **fields)

    def __str__(self):
        cut = f"data {self.data} x pipeline {self.pipeline} x tensor {self.tensor}"
        state = ", optimizer sharded" if self.sharded else ""
        return (f"{self.nodes} x {self.node.name}: {cut}, {self.micro_batches} micro-batches of "
                f"{self.micro_rows} rows{state}")  # fmt: skip


def _refusal(plan):
    """Which rule a plan breaks, if one."""
    ways = plan.data * plan.pipeline * plan.tensor
    if ways != plan.ranks:
        have = f"{plan.nodes} nodes of {plan.node.cards} cards have {plan.ranks}"
        return (f"data {plan.data} x pipeline {plan.pipeline} x tensor {plan.tensor} makes {ways} "
                f"ranks, and {have}")  # fmt: skip
    for what, has, by, count in (
        ("blocks", plan.network.blocks, "stages of the pipeline", plan.pipeline),
        ("heads", plan.network.heads, "ranks of a tensor group", plan.tensor),
    ):
        if has < count:
            return f"{has} {what} are too few for {count} {by}: each needs one"
    if plan.node.cards % plan.tensor:
        return (f"a tensor group stays in its server: {plan.tensor} ranks do not divide "
                f"{plan.node.cards} cards")  # fmt: skip
    parts = plan.data * plan.micro_batches
    if plan.rows % parts:
        return (f"{plan.rows} rows cannot be cut into data {plan.data} x {plan.micro_batches} "
                f"micro-batches = {parts} equal parts")  # fmt: skip
    if not 0 < plan.interval_s < math.inf:
        return f"a checkpoint interval is a number of seconds above 0, not {plan.interval_s}"
    return None


class Memory(NamedTuple):
    """Bytes on the ranks of one stage: what is kept from step to step, and at most at a time."""

    stage: int
    kept: Account
    activations: float

    @property
    def total(self) -> float:
        return sum(self.kept) + self.activations


def stage_weights(plan, stage: int) -> float:
    """Weights on a rank of this stage: matrices are cut over the tensor axis, the ends are not."""
    net, n = plan.network, plan.network.features
    blocks = net.stage_blocks(plan.pipeline)[stage]
    cut, whole = blocks * (12 * n * n + 7 * n), blocks * 6 * n
    whole += (net.symbols + net.length) * n * (stage == 0)
    whole += (n + 1) * net.symbols * (stage == plan.pipeline - 1)
    return cut / plan.tensor + whole


def memory(plan) -> list[Memory]:
    """Of every stage: 2 + 2 + 12 bytes a weight (bf16, with float32 masters and Adam), and what
    backward needs of each micro-batch that is under way.

    Of a letter in a block: 4 vectors of `features` that all ranks of a tensor group have, and 12
    that are divided among them, in bf16.  Left out: attention's scores, of which a fused kernel
    keeps none; buffers of messages, the flat gradient, what the memory's own manager wastes.
    """
    net, found = plan.network, []
    for stage, blocks in enumerate(net.stage_blocks(plan.pipeline)):
        state = account(stage_weights(plan, stage), plan.data, 1 if plan.sharded else 0)
        live = min(plan.micro_batches, plan.pipeline - stage)
        numbers = live * blocks * plan.activation_elements * (4 + 12 / plan.tensor)
        found.append(Memory(stage, state, 2 * numbers))
    return found


def usable_bytes(node: NodeType) -> float:
    """Of a card's memory: all but RESERVE."""
    return (1 - RESERVE) * node.device.memory_bytes


def check_memory(plan) -> Memory:
    """The Memory of the fullest stage.  Raises ValueError where it is more than may be used of a
    card: which rank, and how much."""
    fullest = max(memory(plan), key=lambda stage: stage.total)
    has, usable = plan.node.device.memory_bytes, usable_bytes(plan.node)
    needs = fullest.total
    if needs > usable:
        rank = fullest.stage * plan.tensor
        kept = f"{sum(fullest.kept) / GIGA:.1f} GB of weights, gradients and optimizer"
        raise ValueError(
            f"rank {rank} (stage {fullest.stage}) needs {needs / GIGA:.1f} GB, {kept} and "
            f"{fullest.activations / GIGA:.1f} GB of activations: of a card's {has / GIGA:g} GB "
            f"{usable / GIGA:g} may be used, that is {(needs - usable) / GIGA:.1f} GB too little"
        )
    return fullest
