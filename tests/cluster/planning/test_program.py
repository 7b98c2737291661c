"""The program of a plan: equal to one process, and of the cost that formulas say."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.cluster.planning import (
    DGX_A100,
    RESTING,
    Plan,
    PlannedTraining,
    Transformer,
    measured_step,
    simulated_step,
    traffic,
)
from course.cluster.planning.program import DataUpdate
from course.parallel.tensor import whole_state_dict
from course.worlds import processes, run

SIZES = Transformer(16, 4, 3, 8, symbols=11)
LETTERS = torch.randint(11, (12, 9), generator=torch.Generator().manual_seed(0))


def train(comm, plan, steps):
    training = PlannedTraining(comm, plan, torch.float64)
    for _ in range(steps):
        training.step(LETTERS[:, :-1], LETTERS[:, 1:])
    return list(whole_state_dict(training.stage).values())


def plan_of(data, pipeline, tensor, sharded=False, micro_batches=None):
    kind = RESTING._replace(cards=data * pipeline * tensor)
    many = micro_batches or (3 if data == 4 else 2)
    return Plan(SIZES, kind, 1, data, pipeline, tensor, 12, many, sharded)


@pytest.fixture(scope="module")
def serial():
    return run(train, 1, plan_of(1, 1, 1, micro_batches=1), 3)[0]


@pytest.mark.parametrize("axes", [(2, 1, 1, True), (3, 1, 1, True), (1, 1, 2), (1, 3, 1),
                                  (2, 1, 2), (2, 2, 1, True), (2, 2, 2, True)])  # fmt: skip
def test_every_plan_is_one_process(axes, serial):
    plan = plan_of(*axes)
    states = run(train, plan.ranks, plan, 3, on=processes(oversubscribe=True))
    whole = [x for stage in range(plan.pipeline) for x in states[stage * plan.tensor]]
    assert len(whole) == len(serial)
    for mine, theirs in zip(whole, serial):
        assert (mine - theirs).abs().max() < 1e-12
    copies = states[plan.pipeline * plan.tensor :: plan.pipeline * plan.tensor]
    assert all(torch.equal(a, b) for copy in copies for a, b in zip(states[0], copy))


@pytest.mark.parametrize("axes", [(4, 1, 1, True), (2, 2, 2), (1, 3, 2), (4, 1, 2, True)])
def test_bytes_are_those_of_the_formula(axes):
    plan = plan_of(*axes)
    sent = simulated_step(plan).sent_bytes
    for rank, nbytes in enumerate(sent):
        stage = rank // plan.tensor % plan.pipeline
        assert nbytes == pytest.approx(sum(traffic(plan, stage).values()), rel=0.05)


def test_a_step_on_real_ranks_rests_as_long_as_predicted():
    sizes = SIZES._replace(rest_flops=2e8)
    plan = Plan(sizes, RESTING, 2, 2, 1, 2, 8, 2)
    imagined, real = simulated_step(plan), measured_step(plan, turns=1)
    assert real.seconds > 0.95 * imagined.seconds > 0.9 * 3 * 3 * 64 * 2e8 / 4 / 1e12
    assert real.sent_bytes == imagined.sent_bytes
    assert (imagined.source, real.source) == ("simulated", "measured")


def test_less_achieved_takes_longer():
    plan = Plan(Transformer(1024, 16, 2, 256), DGX_A100, 1, data=8, rows=64)
    fast, slow = (simulated_step(plan, share).seconds for share in (1.0, 0.25))
    assert fast < slow < 4 * fast


def test_imagined_attention_moves_no_bytes_of_length_squared():
    """A GPU has a fused kernel; what torch does on shapes alone writes a score for every pair."""
    fast = DGX_A100._replace(device=DGX_A100.device._replace(flops_per_s=1e30))
    plans = (Plan(Transformer(64, 4, 2, n), fast, 1, data=8, rows=8) for n in (1024, 4096))
    short, long = (simulated_step(plan).report.ranks[0].computing_s for plan in plans)
    assert short < long < 4 * short  # four times the letters


class FullSize(TorchDispatchMode):
    """Which storages of `numbers` numbers operations have filled."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.filled = numbers, set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.numel() == self.numbers:
            self.filled.add(found.untyped_storage().data_ptr())
        return found


def copies_of_the_gradient(comm):
    """How many flat copies an update makes before it sends; the gradient of the first weights."""
    weights = [torch.ones(n) for n in (5, 8)]
    update = DataUpdate(comm, weights, sharded=True)
    for w in weights:
        w.grad = torch.full_like(w, 3.0)
    seen, sums = [], update.sums.reduce_scatter

    def reduce_scatter(gradient):
        seen.append(len(counter.filled))
        return sums(gradient)

    update.sums.reduce_scatter = reduce_scatter
    with FullSize(13) as counter:
        update.step()
    return seen, weights[0].grad.tolist()


def test_an_update_makes_one_flat_copy_and_leaves_the_gradients():
    assert run(copies_of_the_gradient, 2) == [([1], [3.0] * 5)] * 2
