import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, bmm_flop

from benchmarks.selectivity import A16, A24, PLAIN
from course.learning.nine_layers.network import NineLayers
from course.learning.nine_layers.plan import BILLION, NORMED, sizes
from tests.learning.nine_layers.test_network import BLOCKS, SMALL, images_for


def test_the_billion_of_le_is_counted_without_being_built():
    counted = sizes(BILLION)
    assert [size.weights for size in counted] == [260_410_464, 544_195_584, 412_252_416]
    assert [size.simple for size in counted] == [267_912, 209_952, 159_048]
    assert [size.pooled for size in counted] == [256_328, 199_712, 150_152]
    assert [n for size in counted for n in size[:2]] == [183, 179, 162, 158, 141, 137]


@pytest.mark.parametrize("plan", [SMALL, BLOCKS, NORMED, PLAIN, A16, A24, BILLION])
def test_weights_and_neurons_are_those_of_the_network_itself(plan):
    with torch.device("meta"):
        net = NineLayers(plan, seed=0)
        answers = net.after_each(torch.empty(2, plan.channels, plan.side, plan.side))
    counted = sizes(plan)
    assert [size.weights for size in counted] == [p.numel() for p in net.parameters()]
    assert [size.pooled for size in counted] == [each[0].numel() for each in answers]
    assert [size.pooled_side for size in counted] == [each.shape[-1] for each in answers]


@pytest.mark.parametrize("plan", [SMALL, BLOCKS, NORMED])
def test_flop_are_those_that_torch_counts(plan):
    net = NineLayers(plan._replace(even=None), seed=0)
    baddbmm = {torch.ops.aten.baddbmm_: lambda into, a, b, **_: bmm_flop(a, b)}  # torch lacks it
    with FlopCounterMode(display=False, custom_mapping=baddbmm) as counter:
        net(images_for(plan, 5).float())
    assert counter.get_total_flops() == 5 * sum(size.flop for size in sizes(plan))
