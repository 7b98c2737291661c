"""What the other tests here rest on: that their own material would show a fault."""

import pytest
import torch

from tests.collectives.drills import Material
from tests.collectives.guarded import column, middle
from tests.collectives.serial import values


def test_the_values_drawn_for_large_tensors_do_not_repeat_at_a_buffer_s_distance():
    """What the tests with large messages rest on: a swapped block would be noticed."""
    x = values((1_500_007,), torch.float32, 0)
    for distance in (1 << 14, 1 << 16, 1 << 18, 1 << 20):
        assert not torch.equal(x[distance:], x[:-distance])


@pytest.mark.parametrize("layout", [middle, column])
def test_the_guard_notices_a_neighbour_that_was_written(layout):
    material = Material(torch.float32, layout)
    view = material.room((3,))
    assert material.intact
    view.fill_(1)
    assert material.intact
    torch.as_strided(view, (1,), (1,), view.storage_offset() - 1).fill_(1)
    assert not material.intact
