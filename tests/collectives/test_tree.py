import pytest

from course.collectives.tree import binomial_tree, flat_tree


def test_a_binomial_tree():
    assert (
        drawn(binomial_tree(8))
        == """
        0→1
        0→2 1→3
        0→4 1→5 2→6 3→7"""
    )
    assert (
        drawn(binomial_tree(6, root=2))
        == """
        2→3
        2→4 3→5
        2→0 3→1"""
    )
    assert binomial_tree(1) == []


def test_a_flat_tree():
    assert flat_tree(4) == [[(0, 1)], [(0, 2)], [(0, 3)]]
    assert flat_tree(3, root=1) == [[(1, 0)], [(1, 2)]]
    assert flat_tree(1) == []


@pytest.mark.parametrize("tree", [flat_tree, binomial_tree])
@pytest.mark.parametrize("p", range(1, 10))
def test_everybody_is_reached_once_and_passes_on_only_what_has_arrived(tree, p):
    for root in range(p):
        reached = [root]
        for pairs in tree(p, root):
            assert {src for src, _ in pairs} <= set(reached)
            reached += [dst for _, dst in pairs]
        assert sorted(reached) == list(range(p))


@pytest.mark.parametrize("tree", [flat_tree, binomial_tree])
@pytest.mark.parametrize("p", range(1, 10))
def test_each_rank_knows_its_own_part_of_the_plan(tree, p):
    plan = tree(p, p // 2)
    for rank in range(p):
        own = [(number, *pair) for number, pairs in enumerate(plan) for pair in pairs
               if rank in pair]  # fmt: skip
        assert plan.by_rank[rank] == own


def drawn(rounds):
    margin = "\n" + 8 * " "
    return margin + margin.join(" ".join(f"{a}→{b}" for a, b in pairs) for pairs in rounds)
