"""Two steps on shards, the second with prefetch; times in units of arithmetic, on the formulas."""

import pytest
import torch

from course.classroom.drawings import prefetch, shard_steps
from course.cluster.hardware import ETHERNET_1G, FDR, NVLINK_V100
from course.comm import Trace


def test_the_second_step_gathers_once_less_and_is_shorter():
    trace = Trace()
    first, second = shard_steps.two_steps(FDR, 3, 4096, trace)
    gathers = [sum(each.what == prefetch.GATHERS for each in prefetch.calls(trace, start, end))
               for _, start, end in (first, second)]  # fmt: skip
    assert gathers == [16, 15]
    assert second[2] - second[1] < first[2] - first[1]
    assert len(first[0]) == len(second[0]) == 16


def test_a_step_is_little_more_than_its_arithmetic_on_a_fast_network_and_far_more_on_a_slow_one():
    assert 1 <= shard_steps.in_arithmetic(NVLINK_V100, 3, 4096) < 1.1
    assert shard_steps.in_arithmetic(ETHERNET_1G, 3, 4096) > 10


def test_formulas_are_those_of_the_text():
    r = torch.tensor([0.5, 1.5, 3.0])
    assert shard_steps.of_formula(3, r).tolist() == [1, 1.5, 3]
    expected = pytest.approx([1 + 0.5 / 3, 1.5, 7 / 3])
    assert shard_steps.of_formula(2, r).tolist() == expected


def test_dots_lines_and_the_mark_are_drawn_inside_of_the_axes():
    rows, found = (512, 1024, 4096), {"stage 2": [4.0, 2.2, 1.3], "stage 3": [5.2, 2.6, 1.0]}
    axes = shard_steps.draw(rows, found, 2700)
    texts = [text.get_text() for text in axes.texts]
    assert {"stage 2", "stage 3", "r = 1"} <= set(texts)
    title = axes.get_title() or axes.get_title(loc="left")
    assert "1.30 times stage 2 with 512 rows, 0.77 times with 4,096" in title
    low, high = axes.get_ylim()
    assert low < 1 and high > 5.3
    assert [label.get_text() for label in axes.get_xticklabels()] == ["512", "1,024", "4,096"]
