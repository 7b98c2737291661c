"""Shards: who keeps which part of the flat parameters, and what that costs."""

import pytest

from course.parallel.server.shards import ANSWER_BYTES, ASK_BYTES, Plan, cut, step_bytes


def test_a_cut_by_hand():
    assert cut(5, 2, 7) == Plan(servers=(0, 1), clients=(2, 3, 4), bounds=(0, 3, 7))
    assert cut(4, 3, 2) == Plan((0, 1, 2), (3,), (0, 0, 1, 2))
    assert cut(2, 1, 0).bounds == (0, 0)
    assert cut(5, 2, 7).named(1) == "server rank 1 (shard 1 of 2)"


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
@pytest.mark.parametrize("elements", [0, 1, 5, 7, 100])
def test_every_parameter_is_in_one_shard_and_shards_differ_by_one(servers, elements):
    plan = cut(servers + 1, servers, elements)
    parts = [range(elements)[plan.shard(number)] for number in range(servers)]
    assert [e for part in parts for e in part] == list(range(elements))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("asked", [(1, 1, 5), (3, 3, 5), (3, 0, 5), (3, -1, 5), (3, 1, -1),
                                   (3, 1.0, 5), (3, True, 5)])  # fmt: skip
def test_cuts_that_cannot_be(asked):
    ranks, servers, elements = asked
    with pytest.raises(ValueError) as caught:
        cut(*asked)
    assert str(caught.value) == (
        "a parameter server needs at least 1 server rank, at least 1 client rank and a whole "
        f"number of parameters, not {servers} servers among {ranks} ranks for {elements}"
    )


def test_bytes_by_hand():
    """7 float32: 3 and 4 of them; two clients, each of which asks twice."""
    plan = Plan((0, 3), (1, 2), (0, 3, 7))
    client = 2 * 2 * ASK_BYTES + 28
    assert step_bytes(plan, 4) == [
        2 * (ANSWER_BYTES + 12), client, client, 2 * (ANSWER_BYTES + 16)
    ]  # fmt: skip
