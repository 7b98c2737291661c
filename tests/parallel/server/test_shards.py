"""Shards: who keeps which part of the flat parameters, and what that costs."""

import pytest

from course.parallel.server.messages import REPLY_BYTES, REQUEST_BYTES
from course.parallel.server.shards import Plan, shard_plan, step_bytes


def test_a_plan_by_hand():
    assert shard_plan(5, 2, 7) == Plan(servers=(0, 1), clients=(2, 3, 4), bounds=(0, 3, 7))
    assert shard_plan(4, 3, 2) == Plan((0, 1, 2), (3,), (0, 0, 1, 2))
    assert shard_plan(2, 1, 0).bounds == (0, 0)
    assert shard_plan(5, 2, 7).describe(1) == "server rank 1 (shard 1 of 2)"


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
@pytest.mark.parametrize("elements", [0, 1, 5, 7, 100])
def test_every_parameter_is_in_one_shard_and_shards_differ_by_one(servers, elements):
    plan = shard_plan(servers + 1, servers, elements)
    parts = [range(elements)[plan.shard(number)] for number in range(servers)]
    assert [e for part in parts for e in part] == list(range(elements))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("asked, sentence", [
    ((1, 1, 5), "1 servers among 1 ranks leave no rank to be a client"),
    ((3, 4, 5), "4 servers among 3 ranks leave no rank to be a client"),
    ((3, 0, 5), "the number of servers is a whole number, 1 or more, not 0"),
    ((3, 1, -1), "the number of parameters is a whole number, 0 or more, not -1"),
    ((3, 1.0, 5), "the number of servers is a whole number, 1 or more, not 1.0"),
    ((True, 1, 5), "the number of ranks is a whole number, 1 or more, not True"),
])  # fmt: skip
def test_plans_that_cannot_be(asked, sentence):
    with pytest.raises(ValueError) as caught:
        shard_plan(*asked)
    assert str(caught.value) == sentence


def test_bytes_by_hand():
    """7 float32: 3 and 4 of them; two clients, each of which asks twice."""
    plan = Plan((0, 3), (1, 2), (0, 3, 7))
    client = 2 * 2 * REQUEST_BYTES + 28
    assert step_bytes(plan, 4) == [
        2 * (REPLY_BYTES + 12), client, client, 2 * (REPLY_BYTES + 16)
    ]  # fmt: skip
