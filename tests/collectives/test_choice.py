import pytest
import torch

from course.collectives import all_reduce, cost
from course.collectives.all_reduce import ALGORITHMS, chosen
from course.collectives.choice import THIS_MACHINE, Fabric, Link, choose
from course.comm import CommMismatch
from course.worlds import processes, run
from tests.worlds.simulator.clusters import ALPHA_S, BETA_S, switched

SLOW, FAST = Link(1e-4, 1e-8), Link(1e-5, 1e-10)
SWITCH = Fabric(Link(ALPHA_S, BETA_S), Link(ALPHA_S, BETA_S))


def test_short_tensors_take_few_steps_and_long_ones_send_few_bytes():
    nodes, by_size = tuple(range(8)), []
    for elements in (1, 10_000, 10**8):
        by_size.append(choose(nodes, elements, 4, Fabric(FAST, SLOW)).algorithm)
    assert by_size == ["recursive_doubling", "halving_doubling", "halving_doubling"]


def test_two_more_copies_weigh_more_than_a_few_steps_if_a_tensor_is_long():
    assert choose((0, 1, 2, 3), 100_000, 4).algorithm == "halving_doubling"
    assert choose((0, 1, 2, 3), 4_000_000, 4).algorithm == "ring"


def test_nodes_of_many_ranks_are_crossed_by_few():
    nodes = (0,) * 4 + (1,) * 4
    assert choose(nodes, 10**7, 4, Fabric(FAST, SLOW)).algorithm == "hierarchical"
    assert choose(nodes, 10**7, 4, Fabric(FAST, FAST._replace(alpha_s=1.0))).seconds["ring"] > 14


def test_the_sentence_has_every_algorithm_and_its_seconds():
    choice = choose((0, 1), 10**6, 4, SWITCH)
    assert set(choice.seconds) == set(ALGORITHMS)
    ring = cost.ring_all_reduce(2, 10**6, 4).seconds(ALPHA_S, BETA_S)
    assert choice.seconds["ring"] == pytest.approx(ring)
    assert choice.reason.startswith(
        f"{choice.algorithm} should take {min(choice.seconds.values()):.3g} s "
        "for 4000000 bytes on 2 ranks of 2 nodes; "
    )
    assert f"ring {ring:.3g} s" in choice.reason


def test_memory_that_ranks_share_is_reckoned_with():
    one_node = (0, 0, 0, 0)
    assert choose(one_node, 32 * 10**6, 4).algorithm == "hierarchical"
    assert (
        choose(one_node, 32 * 10**6, 4, THIS_MACHINE._replace(memory=None)).algorithm
        != "hierarchical"
    )


def clock_of(comm, algorithm, elements, fabric):
    x = torch.ones(elements)
    before = comm.clock()
    all_reduce(comm, x, algorithm=algorithm, fabric=fabric, segment_bytes=1 << 40)
    return comm.clock() - before


def free(op, flops, nbytes, device):
    return 0.0


@pytest.mark.parametrize("ranks", [2, 4, 6])
@pytest.mark.parametrize("elements", [1, 3000, 300_000])
def test_on_an_imagined_switch_nothing_is_faster_than_what_it_chooses(ranks, elements):
    """6 ranks: what is late there, by a share of a link, stays within a tenth."""
    world = switched(ranks, charge=free)
    took = {name: max(run(clock_of, ranks, name, elements, SWITCH, on=world))
            for name in (*ALGORITHMS, "auto")}  # fmt: skip
    assert took.pop("auto") <= min(took.values()) / 0.9


def disagree(comm):
    """Rank 0 thinks that messages take a second, the others that bytes do."""
    wild = Link(1.0, 0.0) if comm.rank == 0 else Link(0.0, 1.0)
    with pytest.raises(CommMismatch) as caught:
        all_reduce(comm, torch.ones(100), algorithm="auto", fabric=Fabric(wild, wild))
    return str(caught.value)


def test_ranks_that_choose_differently_hear_of_it():
    first, *others = run(disagree, 3, on=processes(nodes=(0, 1, 2)))
    assert "by flat); ranks 1, 2 are in" in first and "by ring)" in first
    assert others == [first] * 2


def choose_here(comm):
    """In the world, beside it, and beside a group of all its ranks."""
    x, group = torch.ones(3), comm.split(0)
    begun = [each.submit(lambda c: chosen(c, x).algorithm) for each in (comm, group)]
    return chosen(comm, x).algorithm, *[handle.wait() for handle in begun]


def test_only_what_runs_beside_a_group_shares_no_memory():
    assert run(choose_here, 4) == [("hierarchical", "hierarchical", "recursive_doubling")] * 4
