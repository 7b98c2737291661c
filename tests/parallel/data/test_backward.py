"""What is known of one pass of autograd."""

import torch
from torch import nn

from course.parallel.data.backward import Backward


def test_a_pass_counts_as_its_forwards_do_on_average():
    backward = Backward(sync=True)
    assert backward.weight is None  # it went through none: not the same as none of rows
    backward.rows["first"] = 3
    assert backward.weight == 3
    backward.rows["second"] = 0
    assert backward.weight == 1.5
    backward.rows["first"] = 0
    assert backward.weight == 0


def test_what_was_gathered_is_kept_until_all_of_it_is_cleared():
    backward, parameters = Backward(sync=False), [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    assert not backward.kept
    for p in parameters:
        backward.arrived[p], p.grad = (0, 0), torch.ones(1)
    parameters[0].grad = None
    assert backward.kept
    parameters[1].grad = None
    assert not backward.kept
