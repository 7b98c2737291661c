"""Padding of arrays is that of the whole: every mode, any cut, and its slope."""

import functools
import random

import pytest
from torch.nn import functional

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import part
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn
from tests.parallel.spatial.test_convolution import errors_of, spatial_layout

MODES = "constant", "circular", "reflect", "replicate"


def padded(comm, mode, count):
    draw, worst = random.Random(comm.size), []
    for number in range(count):
        shape = 2, 3, draw.randint(3, 8), draw.randint(3, 8)
        options = {"pad": [draw.randint(-1, 2) for _ in range(4)], "mode": mode}
        if mode == "constant" and draw.random() < 0.5:
            options["value"] = 1.5
        layout = spatial_layout(draw, shape, comm.size)
        of = functools.partial(functional.pad, **options)
        error = errors_of(comm, layout, drawn(*shape, seed=number), [], of)
        worst.append((error, str(layout), options))
    return [each for each in worst if each[0] > 1e-12]


def every_mode(comm):
    return {mode: padded(comm, mode, 8) for mode in MODES}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_padding_is_that_of_the_whole(ranks):
    assert run(every_mode, ranks, timeout=60) == [dict.fromkeys(MODES, [])] * ranks


def refused(comm, pad):
    functional.pad(part(comm, drawn(6, 4), (comm.size, 1)), pad)


@pytest.mark.parametrize("pad", [(1, 1, 1), (1, 1, 1, 1, 1, 1)])
def test_what_is_no_padding(pad):
    with pytest.raises(RankError, match="a padding has two numbers an axis, for 2 axes at most"):
        run(refused, 2, pad, on=simulated(one_switch(2, FREE, NDR)))
