"""Four real programs whose work can be chosen."""

import pytest
import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR
from course.cluster.scaling import simulate
from course.cluster.scaling.programs import PROGRAMS, Working
from course.cluster.scaling.work import DEVICE
from course.worlds import run


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_grows_with_the_amount_and_is_shared(name):
    """Charged on the imagined cluster: of p ranks with amount p each has as much to do as one."""
    points = simulate(
        lambda p: one_switch(p, DEVICE, FDR), [1, 2, 4], [name], told=lambda sentence: None
    )
    seconds = {(point.scaling, point.ranks): point.seconds for point in points}
    assert seconds["strong", 1] == seconds["weak", 1] > 0.1
    bubble = {1: 1, 2: 9 / 8, 4: 11 / 8} if name == "pipeline" else {1: 1, 2: 1, 4: 1}
    for p in (2, 4):
        assert seconds["strong", p] == pytest.approx(bubble[p] * seconds["strong", 1] / p, rel=0.2)
        assert seconds["weak", p] == pytest.approx(bubble[p] * seconds["weak", 1], rel=0.2)


def stepped(comm, name):
    """Two steps of what computes in earnest."""
    step = PROGRAMS[name](comm, 1, False)
    step()
    step()
    return comm.meter.sent_messages


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_in_earnest_too(name):
    assert min(run(stepped, 2, name, timeout=60)) > 0


def test_working_gives_what_its_module_gives():
    layer = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    assert torch.equal(Working(layer, 0.0)(x), layer(x))
