"""A plan refuses what cannot be, in a sentence, and knows what its ranks must keep."""

import pytest
import torch

from course.cluster.planning import (
    A100_ETHERNET,
    DGX_A100,
    DGX_H100,
    RESERVE,
    Plan,
    Transformer,
    check_memory,
    memory,
    usable_bytes,
)
from course.cluster.planning.plan import stage_weights
from course.cluster.planning.program import PlannedTraining, cut_stage
from course.cluster.planning.transformer import TransformerBlock
from course.worlds import processes, run

LARGE = Transformer(12288, 96, 4, 2048)


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"data": 2}, "data 2 x pipeline 1 x tensor 1 makes 2 ranks, and 1 nodes of 8 cards have 8"),
    ({"pipeline": 8}, "4 blocks are too few for 8 stages of the pipeline"),
    ({"data": 8, "micro_batches": 3}, "256 rows cannot be cut into data 8 x 3 micro-batches = 24"),
    ({"data": 1, "nodes": 2, "tensor": 16}, "stays in its server: 16 ranks do not divide 8 cards"),
    ({"data": 8, "interval_s": 0.0}, "seconds above 0, not 0.0"),
    ({"data": 8, "rows": 0}, "rows"),
])  # fmt: skip
def test_what_cannot_be_is_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        Plan(**{"network": LARGE, "node": DGX_A100, "nodes": 1} | fields)


def test_heads_must_suffice():
    with pytest.raises(ValueError, match="2 heads are too few for 8 ranks of a tensor group"):
        Plan(Transformer(64, 2, 4, 8), DGX_A100, 1, tensor=8)


def test_too_little_memory_says_which_rank_and_how_much():
    plan = Plan(LARGE, DGX_A100, 4, data=32, micro_batches=8)
    told = r"rank 0 \(stage 0\) needs 119.7 GB, 116.5 GB of weights.* of activations: "
    told += "of a card's 40 GB 34 may be used, that is 85.7 GB too little"
    with pytest.raises(ValueError, match=told):
        check_memory(plan)
    shares = plan.changed(data=4, tensor=4, pipeline=2, sharded=True)
    assert check_memory(shares).total < 34e9


def test_a_reserve_stays_free_to_the_last_byte_that_may_be_used():
    assert 0.1 <= RESERVE <= 0.2 and usable_bytes(DGX_H100) == pytest.approx((1 - RESERVE) * 80e9)
    plan = Plan(LARGE, DGX_A100, 4, data=4, pipeline=2, tensor=4, sharded=True)
    needs = check_memory(plan.changed(node=DGX_H100)).total
    for share, fits in ((1 - RESERVE - 1e-6, True), (1 - RESERVE + 1e-6, False)):
        card = DGX_A100.device._replace(memory_bytes=needs / share)
        small = plan.changed(node=DGX_A100._replace(device=card))
        if fits:
            assert check_memory(small).total == needs
        else:
            with pytest.raises(ValueError, match="may be used, that is 0.0 GB too little"):
                check_memory(small)


def test_sharding_divides_the_optimizer_alone():
    plan = Plan(LARGE, A100_ETHERNET, 1, data=4, tensor=2)
    whole, sharded = (memory(each)[0].kept for each in (plan, plan.changed(sharded=True)))
    assert whole[:2] == sharded[:2] and whole.optimizer == 4 * sharded.optimizer
    assert sum(whole) == pytest.approx(16 * stage_weights(plan, 0))


def count_weights(comm, plan):
    training = PlannedTraining(comm, plan, torch.float32)
    return sum(p.numel() for p in training.stage.parameters())


def test_weights_of_a_stage_are_those_that_its_ranks_have():
    kind = DGX_A100._replace(cards=4)
    plan = Plan(Transformer(16, 4, 3, 8), kind, 1, pipeline=2, tensor=2, rows=2)
    counts = run(count_weights, 4, plan, on=processes(oversubscribe=True))
    assert counts == [stage_weights(plan, stage) for stage in (0, 0, 1, 1)]


def kept_for_backward(comm, sizes, rows):
    """Bytes that a block keeps for its backward, beside its weights."""
    stage = cut_stage(torch.nn.Sequential(TransformerBlock(sizes)), comm)
    own, seen = {p.untyped_storage().data_ptr() for p in stage.parameters()}, {}

    def see(x):
        seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    x = torch.ones(rows, sizes.length, sizes.features, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(see, lambda x: x):
        y = stage(x)
    assert y.shape == x.shape
    return sum(nbytes for place, nbytes in seen.items() if place not in own)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_activations_are_what_a_block_keeps(ranks):
    sizes, rows = Transformer(64, 4, 1, 32), 4
    kept = run(kept_for_backward, ranks, sizes, rows, on=processes(oversubscribe=True))
    kind = DGX_A100._replace(cards=ranks)
    plan = Plan(sizes, kind, 1, tensor=ranks, rows=rows)
    found = 2 * memory(plan)[0].activations  # in float32 twice as much as in bf16
    assert kept[0] == pytest.approx(found, rel=0.06)


def test_under_way_are_as_many_micro_batches_as_stages_follow():
    kind = DGX_A100._replace(cards=4)
    plan = Plan(LARGE, kind, 1, pipeline=4, micro_batches=8)
    found = [stage.activations for stage in memory(plan)]
    assert [each / found[3] for each in found] == [4, 3, 2, 1]


def test_a_plan_says_what_it_is():
    plan = Plan(LARGE, DGX_A100, 1, data=8, micro_batches=4, sharded=True)
    assert str(plan) == ("1 x A100: data 8 x pipeline 1 x tensor 1, 4 micro-batches of 8 rows, "
                         "optimizer sharded")  # fmt: skip
