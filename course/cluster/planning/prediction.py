"""What a plan will take, by formula: seconds of a step and what they go into, bytes that are sent,
days, energy, money, and what failures waste.

Left out: what cards read from their memory and write to it, which for norms, sums and Adam is all
that counts; the start of kernels; reading data; congestion of others; and sums of gradients that
hide behind the backward pass, which this program does not do.
"""

from typing import NamedTuple

from course.cluster.failover.interval import system_mtbf, waste
from course.cluster.planning.plan import Plan, stage_weights
from course.cluster.planning.program import ALGORITHM
from course.collectives import cost
from course.parallel.array.layout import even_cuts
from course.parallel.pipeline import simulate

HALF_BYTES, WHOLE_BYTES = 2, 4  # of bf16, and of what rests
KEPT_BYTES = 14  # a weight in a checkpoint: itself, masters and Adam's two
DAY, HOUR = 86400.0, 3600.0


class Assumptions(NamedTuple):
    """What no formula knows: yours to choose, and to defend.

    `achieved`: the share of their arithmetic that cards reach in products; `letters` to train on;
    `prices` {name of a NodeType: money for a card and hour}; of a node the mean seconds between
    failures; bytes a second into the storage; seconds of a restart.
    """

    achieved: float
    letters: float
    prices: dict
    node_mtbf_s: float = 365 * DAY
    storage_bytes_per_s: float = 5e9
    restart_s: float = 600.0


class Estimate(NamedTuple):
    """Of a plan: `parts` {what: seconds} of a step, `failures` the share of all time that they
    waste; money in the unit of the prices."""

    parts: dict
    failures: float
    days: float
    money: float
    watts: float
    mwh: float

    @property
    def step_s(self) -> float:
        return sum(self.parts.values())

    @property
    def exposed(self) -> float:
        """The share of a step in which a rank waits for a cable."""
        return sum(self.parts[name] for name in ("tensor", "pipeline", "data")) / self.step_s


def estimate(plan: Plan, assumed: Assumptions) -> Estimate:
    """What a plan takes, by formula.  Raises ValueError where its node has no price."""
    if plan.node.name not in assumed.prices:
        known = ", ".join(assumed.prices)
        raise ValueError(f"there is a price for {known}, and none for {plan.node.name!r}")
    parts = step_parts(plan, assumed.achieved)
    failures = failure_waste(plan, assumed)
    steps = assumed.letters / (plan.rows * plan.network.length)
    days = steps * sum(parts.values()) / (1 - failures) / DAY
    money = days * DAY / HOUR * plan.ranks * assumed.prices[plan.node.name]
    watts = plan.nodes * plan.node.watts
    return Estimate(parts, failures, days, money, watts, watts * days * DAY / HOUR / 1e6)


def step_parts(plan: Plan, achieved: float = 1.0) -> dict:
    """Seconds of a step: arithmetic of the busiest rank; the pipeline's bubble; and by how much
    messages along each axis make it longer."""
    rate = achieved * plan.node.device.flops_per_s
    letters = plan.micro_rows * plan.network.length
    blocks = plan.network.stage_blocks(plan.pipeline)
    head = 2 * plan.network.symbols * plan.network.features  # of the last stage, for each letter
    flops = [each * plan.network.block_flops / plan.tensor for each in blocks]
    flops[-1] += head
    forward = [letters * each / rate for each in flops]
    sums = [2 * each * tensor_cost(plan).seconds(*_link(plan, "tensor")) for each in blocks]
    there = message_bytes(plan) * _link(plan, "pipeline")[1] + _link(plan, "pipeline")[0]
    there *= plan.pipeline > 1
    busy = plan.micro_batches * 3 * max(forward)
    ideal = _pipeline_s(plan, forward, [0.0] * len(blocks), 0.0)
    summed = _pipeline_s(plan, forward, sums, 0.0)
    sent = _pipeline_s(plan, forward, sums, there)
    return {"arithmetic": busy, "bubble": ideal - busy, "tensor": summed - ideal,
            "pipeline": sent - summed, "data": data_seconds(plan)}  # fmt: skip


def _pipeline_s(plan, forward, sums, there) -> float:
    forward, backward = zip(*((f + s, 2 * f + s) for f, s in zip(forward, sums)))
    return simulate(plan.schedule, forward, backward, there).seconds


def number_bytes(plan) -> int:
    """Bytes of a number that is sent: bf16, or float32 where layers rest."""
    return WHOLE_BYTES if plan.network.rest_flops else HALF_BYTES


def message_bytes(plan) -> int:
    """What one stage sends the next for each micro-batch."""
    return number_bytes(plan) * plan.activation_elements


def tensor_cost(plan) -> cost.Cost:
    """Of one sum over a tensor group; a block has two of them forward, and two backward."""
    sums = cost.all_reduces(plan.tensor, plan.activation_elements, number_bytes(plan))
    return sums[ALGORITHM]


def data_levels(plan) -> list:
    """[(ranks, (seconds a message, seconds a byte))] of the sums along the data axis: inside
    servers and then across them, where several of its ranks are in each; or of all at once."""
    cards, stride = plan.node.cards, plan.tensor * plan.pipeline
    each = 1 if cards % stride else cards // stride
    if not 1 < each < plan.data:
        return [(plan.data, _link(plan, "data"))]
    return [(each, _inside(plan)), (plan.data // each, _outside(plan, cards))]


def data_costs(plan, stage: int) -> list:
    """Of the gradients of a stage, once a step, and of what comes back (gradients or, with
    sharding, weights): a cost.Cost for each of the `data_levels`."""
    length, nbytes, costs = round(stage_weights(plan, stage)), number_bytes(plan), []
    for ranks, _ in data_levels(plan):
        cuts = even_cuts(length, ranks)
        parts = [nbytes * (stop - start) for start, stop in zip(cuts, cuts[1:])]
        costs.append(cost.reduce_scatter(parts).then(cost.all_gather(parts)))
        length = max(parts) // nbytes
    return costs


def data_seconds(plan) -> float:
    """Of the stage with the most weights."""
    links = [link for _, link in data_levels(plan)]
    stages = [data_costs(plan, stage) for stage in range(plan.pipeline)]
    return max(sum(level.seconds(*link) for level, link in zip(costs, links)) for costs in stages)


def traffic(plan, stage: int = 0) -> dict:
    """Bytes that a rank of a stage sends in a step, along each axis."""
    blocks = plan.network.stage_blocks(plan.pipeline)[stage]
    neighbours = (stage > 0) + (stage < plan.pipeline - 1)
    return {
        "tensor": 4 * blocks * plan.micro_batches * max(tensor_cost(plan).sent_bytes),
        "pipeline": neighbours * plan.micro_batches * message_bytes(plan),
        "data": sum(max(level.sent_bytes) for level in data_costs(plan, stage)),
    }


def _link(plan, axis) -> tuple:
    """(seconds a message, seconds a byte) between neighbours of a group along an axis.

    Where they are in different servers, a member of each group reaches out of its server.
    """
    stride = {"tensor": 1, "pipeline": plan.tensor, "data": plan.tensor * plan.pipeline}[axis]
    reach, each = stride * plan.axes[axis], plan.node.cards
    inside = reach <= each and each % reach == 0
    return _inside(plan) if inside else _outside(plan, min(stride, each))


def _inside(plan) -> tuple:
    return 2 * plan.node.inside.latency_s, 1 / plan.node.inside.bytes_per_s


def _outside(plan, sharing) -> tuple:
    """Between servers, where so many of a server's ranks send at a time: they wait for one another
    if they share its adapter."""
    inside, network = plan.node.inside, plan.node.network
    if not plan.node.shared:
        hops = 4  # from the card to its adapter, to the network, and so on back
        return hops * network.latency_s, 1 / network.bytes_per_s
    return 2 * inside.latency_s + 2 * network.latency_s, sharing / network.bytes_per_s


def failure_waste(plan, assumed) -> float:
    """The share of all time that checkpoints, restarts and what is done again take."""
    mtbf = system_mtbf(assumed.node_mtbf_s, plan.nodes)
    return waste(plan.interval_s, save_seconds(plan, assumed), mtbf, assumed.restart_s)


def save_seconds(plan, assumed) -> float:
    """Of a checkpoint of all weights, for which the training waits."""
    return KEPT_BYTES * plan.network.weights / assumed.storage_bytes_per_s
