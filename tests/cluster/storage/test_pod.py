"""An imagined pod against what can be worked out by hand, and against its own limits."""

import math

import pytest

from course.cluster.storage.pod import Demand, Store, feed, step_limits_s, waiting_share
from course.cluster.storage.starvation import starvation

ENDLESS = Store("no limit", math.inf, math.inf, math.inf, "made up")
SLOW = Store("slow", 91 / 90 * 100, 91 / 90 * 1000, 500, "made up")  # with the writes: 100 and 1000


def step_s(steps):
    """Seconds of a step in the long run: those of the second half."""
    half = len(steps) // 2
    return (steps[-1].end_s - steps[half].end_s) / (len(steps) - 1 - half)


def test_one_worker_by_hand():
    """10 opens take 0.1 s, 100 bytes 0.1 s in the store and 0.2 s on the link, decoding 0.1 s."""
    [steps] = feed(Demand(10, 100, 0.1, 0.2), SLOW, steps=3, workers=1, depth=1)
    expected = [(0, 0.5, 0.5, 0.7), (0.5, 1.0, 1.0, 1.2), (1.0, 1.5, 1.5, 1.7)]
    assert [tuple(step) for step in steps] == [pytest.approx(step) for step in expected]
    assert waiting_share(steps) == pytest.approx(0.5)


def test_two_nodes_wait_for_one_store_but_not_for_one_link():
    one, other = feed(Demand(10, 100, 0.0, 0.0), SLOW, nodes=2, steps=1, workers=1)
    assert one[0].ready_s == pytest.approx(0.4)
    assert other[0].ready_s == pytest.approx(0.5)


def test_a_full_queue_makes_workers_wait():
    """One batch ahead, so the one after the next is asked for when a step has ended."""
    [steps] = feed(Demand(0, 0, 1.0, 10.0), ENDLESS, steps=4, workers=2, depth=1)
    assert [step.asked_s for step in steps] == [0, 0, 11, 21]
    assert [step.begin_s for step in steps] == [1, 11, 21, 31]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("decode_s", [0.5, 1.0, 3.7])
def test_a_node_alone_starves_as_the_formula_says(workers, decode_s):
    [steps] = feed(Demand(0, 0, decode_s, 1.0), ENDLESS, steps=200, workers=workers)
    formula = starvation(decode_s, 1.0, workers)
    assert step_s(steps) == pytest.approx(formula.step_s, rel=0.02)
    assert waiting_share(steps) == pytest.approx(formula.waiting_share, abs=0.02)


LIMITED = {
    "opening files": Demand(100, 1, 0.1, 0.1),
    "bytes of the store": Demand(1, 400, 0.1, 0.1),
    "link of a node": Demand(0, 100, 0.0, 0.1),
    "workers": Demand(0, 1, 9.0, 0.1),
    "computing": Demand(1, 1, 0.1, 5.0),
}


@pytest.mark.parametrize("what", LIMITED)
def test_the_slowest_of_all_sets_the_pace(what):
    nodes = 1 if what == "link of a node" else 4
    limits = step_limits_s(LIMITED[what], SLOW, nodes, 8)
    assert max(limits, key=limits.get) == what
    for steps in feed(LIMITED[what], SLOW, nodes, 400, workers=8):
        assert steps[-1].end_s / 400 == pytest.approx(limits[what], rel=0.02)


def test_what_a_cache_has_is_not_asked_for():
    demand = Demand(64, 6e6, 0.1, 0.2)
    assert demand.missed(0.25) == (16, 1.5e6, 0.1, 0.2)
    limits = step_limits_s(demand.missed(0.0), SLOW, 36, 4)
    assert max(limits, key=limits.get) == "computing"


def test_shards_ask_for_fewer_files():
    files, shards = Demand(64, 64, 0.1, 0.2), Demand(1, 64, 0.1, 0.2)
    of_files, of_shards = (step_limits_s(demand, SLOW, 4, 4) for demand in (files, shards))
    assert of_files["opening files"] == 64 * of_shards["opening files"]
    assert of_files["bytes of the store"] == of_shards["bytes of the store"]


def test_a_deeper_queue_evens_out_what_varies():
    """Workers suffice on average; ahead by one batch only, the GPU waits for the slow ones."""
    demand = Demand(0, 0, 0.2, 1.0)
    shallow, deep = (
        waiting_share(feed(demand, ENDLESS, steps=2000, workers=2, depth=depth, jitter=1.0)[0])
        for depth in (1, 12)
    )
    assert starvation(1.2, 1.0, 2).waiting_share == 0
    assert shallow > 0.1
    assert deep < shallow / 3


def test_jitter_has_a_seed():
    demand = Demand(1, 1, 0.2, 0.3)
    one, again, other = (feed(demand, SLOW, 2, 9, jitter=0.1, seed=seed) for seed in (0, 0, 1))
    assert one == again != other


@pytest.mark.parametrize("what", ["nodes", "steps", "workers"])
def test_nothing_of_something_is_refused(what):
    with pytest.raises(ValueError, match=f"the number of {what} is a whole number, 1"):
        feed(Demand(1, 1, 1, 1), SLOW, **{what: 0})
    if what != "steps":
        with pytest.raises(ValueError, match=f"the number of {what} is a whole number, 1"):
            step_limits_s(Demand(1, 1, 1, 1), SLOW, **{"nodes": 1, "workers": 1, what: 0})


@pytest.mark.parametrize(
    ("demand", "store"),
    [(Demand(-1, 1, 1, 1), SLOW), (Demand(1, 1, math.nan, 1), SLOW),
     (Demand(1, 1, math.inf, 1), SLOW), (Demand(1, 1, 1, 1), SLOW._replace(opens_per_s=0))],
)  # fmt: skip
def test_what_cannot_be_is_refused(demand, store):
    with pytest.raises(ValueError, match="a demand is 0 or more, and what a store does a second"):
        feed(demand, store)
    with pytest.raises(ValueError, match="a demand is 0 or more, and what a store does a second"):
        step_limits_s(demand, store, 1, 1)


@pytest.mark.parametrize("jitter", [-1.0, math.nan, math.inf])
def test_a_jitter_that_cannot_be_is_refused(jitter):
    with pytest.raises(
        ValueError, match=f"the jitter is a number of seconds, 0 or more, not {jitter}"
    ):
        feed(Demand(1, 1, 1, 1), SLOW, jitter=jitter)
