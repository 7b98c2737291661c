"""A mixture of experts on many ranks is brute force on one: values, and every gradient."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from course.worlds import run
from tests.parallel.experts.drawn import Case, by_brute_force, cases, on_ranks, own_rows

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def required_same(case, results):
    expected, seen = by_brute_force(case), set()
    for rank, mine in enumerate(results):
        for name, value in mine.items():
            wanted = expected[name]
            if name[0] in "xy":
                wanted = wanted[own_rows(case, rank)]
            assert (value is None) == (wanted is None), (name, rank)
            if value is not None:
                torch.testing.assert_close(value, wanted, **CLOSE, msg=f"{name} on rank {rank}")
        seen.update(mine)
    assert seen == set(expected)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@settings(max_examples=6, deadline=None, database=None, derandomize=True,
          phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
@given(data=st.data())
def test_values_and_gradients_are_those_of_brute_force(ranks, data):
    drawn = data.draw(st.lists(cases(ranks), min_size=4, max_size=4))
    for case, *results in zip(drawn, *run(on_ranks, ranks, drawn)):
        required_same(case, results)
