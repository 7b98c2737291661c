"""The player: who holds what after each step of a real run, and what its pictures show."""

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.patches import FancyArrowPatch

from course.classroom import player
from course.collectives import all_gather, all_reduce, broadcast, reduce
from course.collectives.tree import binomial_tree
from course.comm import Trace
from course.worlds import run

NOTHING = set()


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def messages_of(fn, ranks):
    trace = Trace()
    run(fn, ranks, trace=trace)
    return trace.messages


def passed_on(ranks):
    """Which part a message of the ring carries: it began as many places left as its tag says."""
    return lambda message, held: {(message.src - message.tag) % ranks}


def gather_parts(comm):
    all_gather(comm, [torch.zeros(3) for _ in range(comm.size)], torch.zeros(3))


def add_up(comm):
    x = torch.ones(5)
    reduce(comm, x)
    broadcast(comm, x)


def arrows(axes):
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


# Holdings


def test_a_planned_broadcast_doubles_its_holders():
    states = player.holdings(player.planned(binomial_tree(5)), [{0}] + [NOTHING] * 4)
    assert states == [
        [{0}, NOTHING, NOTHING, NOTHING, NOTHING],
        [{0}, {0}, NOTHING, NOTHING, NOTHING],
        [{0}, {0}, {0}, {0}, NOTHING],
        [{0}, {0}, {0}, {0}, {0}],
    ]


def test_a_ring_that_ran_passes_every_part_round():
    messages = messages_of(gather_parts, 3)
    states = player.holdings(messages, [{0}, {1}, {2}], passed_on(3))
    assert states == [
        [{0}, {1}, {2}],
        [{0, 2}, {0, 1}, {1, 2}],
        [{0, 1, 2}, {0, 1, 2}, {0, 1, 2}],
    ]


def test_a_sum_that_ran_is_complete_on_the_root_first():
    states = player.holdings(messages_of(add_up, 4), [{0}, {1}, {2}, {3}])
    assert [[len(held) for held in state] for state in states] == [
        [1, 1, 1, 1],
        [2, 2, 1, 1],
        [4, 2, 1, 1],
        [4, 4, 1, 1],
        [4, 4, 4, 4],
    ]


def test_messages_of_one_step_do_not_feed_each_other():
    around = player.planned([[(0, 1), (1, 2), (2, 0)]])
    assert player.holdings(around, [{0}, {1}, {2}])[1] == [{0, 2}, {0, 1}, {1, 2}]


def test_a_run_of_one_rank_has_no_steps():
    assert player.holdings([], [{0}]) == [[{0}]]


def test_the_start_stays_as_it_was_given():
    start = [{0}, set()]
    player.holdings(player.planned([[(0, 1)]]), start)
    assert start == [{0}, set()]


def test_what_nobody_gave_a_rank_it_cannot_send():
    with pytest.raises(ValueError, match="in step 1, rank 1 sends part 7 to rank 0, and does not"):
        player.holdings(player.planned([[(1, 0)]]), [{7}, {1}], lambda message, held: {7})


# Pictures


def test_the_grid_says_how_many_ranks_hold_all_and_what_that_took():
    messages = messages_of(gather_parts, 3)
    states = player.holdings(messages, [{0}, {1}, {2}], passed_on(3))
    axes = player.grid(messages, states, 2, "all parts", carries=passed_on(3))
    assert axes.get_title(loc="left") == "After step 2 of 2, 3 of 3 ranks hold all parts"
    assert axes.get_xlabel() == "3 messages in this step; 72 bytes in all so far"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["rank 0", "rank 1", "rank 2"]
    assert len(arrows(axes)) == 3


def test_the_grid_at_the_start_has_no_arrows():
    plan = player.planned(binomial_tree(4))
    start = [{0}, NOTHING, NOTHING, NOTHING]
    axes = player.grid(plan, player.holdings(plan, start), 0, "the picture")
    assert axes.get_title(loc="left") == "At the start, 1 of 4 ranks holds the picture"
    assert axes.get_xlabel() == "0 messages in this step; 0 bytes in all so far"
    assert not arrows(axes)


def test_one_message_is_not_plural():
    plan = player.planned(binomial_tree(2))
    axes = player.grid(plan, player.holdings(plan, [{0}, NOTHING]), 1, "it")
    assert axes.get_xlabel().startswith("1 message in")


def test_an_arrow_runs_from_the_sender_to_the_receiver_in_the_row_of_its_part():
    messages = messages_of(gather_parts, 3)
    states = player.holdings(messages, [{0}, {1}, {2}], passed_on(3))
    axes = player.grid(messages, states, 1, "all", carries=passed_on(3))
    ends = sorted(
        (round(a), round(c), round(b / 0.2 - 0.5))
        for (a, b), (c, _) in (arrow._posA_posB for arrow in arrows(axes))
    )
    assert ends == [(0, 1, 0), (1, 2, 1), (2, 0, 2)]


def test_a_photograph_is_shown_exactly_where_it_is_held():
    plan, image = player.planned(binomial_tree(4)), torch.rand(6, 9)
    states = player.holdings(plan, [{0}, NOTHING, NOTHING, NOTHING])
    for step, holders in enumerate([[0], [0, 1], [0, 1, 2, 3]]):
        axes = player.grid(plan, states, step, "it", pictures=[image])
        shown = [
            round((left + right) / 2) for left, right, *_ in (i.get_extent() for i in axes.images)
        ]
        assert shown == holders
        assert (axes.images[0].get_array() == image.numpy()).all()


def test_a_sum_is_written_as_its_terms():
    messages = messages_of(add_up, 4)
    states = player.holdings(messages, [{0}, {1}, {2}, {3}])
    axes = player.grid(messages, states, 1, "the sum", summed=True)
    terms = [text.get_text() for text in axes.texts]
    assert terms == ["$x_0$ + $x_2$", "$x_1$ + $x_3$", "$x_2$", "$x_3$"]


def test_all_messages_of_a_run_at_once():
    axes = player.rounds(messages_of(add_up, 4), 4, "up and down")
    ends = [tuple(arrow._posA_posB) for arrow in arrows(axes)]
    assert ends == [
        ((2, 0), (0, 1)), ((3, 0), (1, 1)), ((1, 1), (0, 2)),
        ((0, 2), (1, 3)), ((0, 3), (2, 4)), ((1, 3), (3, 4)),
    ]  # fmt: skip
    assert [text.get_text() for text in axes.get_legend().texts] == ["reduce", "broadcast"]
    assert axes.get_ylim() == (4.1, -0.1), "time runs down"


def widths(axes):
    """How wide each arrow is drawn, in points; nothing where all are slender."""
    return [getattr(arrow.get_arrowstyle(), "tail_width", None) for arrow in arrows(axes)]


def test_an_arrow_is_as_wide_as_its_message_is_long():
    def halves(comm):
        all_reduce(comm, torch.ones(80), algorithm="halving_doubling")

    messages = messages_of(halves, 4)
    lengths = [message.bytes for message in messages]
    assert sorted(set(lengths)) == [80, 160]
    alone = widths(player.rounds(messages, 4, "as wide as long"))
    assert alone == [player.WIDEST * length / 160 for length in lengths]
    beside_whole_ones = widths(player.rounds(messages, 4, "as wide as long", full=320))
    assert beside_whole_ones == [player.WIDEST * length / 320 for length in lengths]


def test_messages_of_one_length_have_slender_arrows_unless_compared():
    messages = messages_of(add_up, 4)
    assert set(widths(player.rounds(messages, 4, "up and down"))) == {None}
    assert set(widths(player.rounds(messages, 4, "up and down", full=40))) == {player.WIDEST / 2}


def test_a_plan_has_no_collectives_to_tell_apart():
    assert player.rounds(player.planned(binomial_tree(4)), 4, "a tree").get_legend() is None


def test_the_slider_draws_the_step_it_shows(monkeypatch):
    drawn, given = [], {}
    monkeypatch.setattr(player, "grid", lambda messages, states, step, *_, **__: drawn.append(step))
    monkeypatch.setattr(player, "sliders", lambda draw, **controls: given.update(controls, d=draw))
    film = [{"step": 2}]
    player.play(player.planned(binomial_tree(4)), [{0}] + [NOTHING] * 3, "it", film=film)
    assert given["film"] == film
    for step in (1, 2, 0):
        given["d"](step)
    assert (given["step"].min, given["step"].max, given["step"].value) == (0, 2, 0)
    assert drawn == [1, 2, 0]


def test_a_ring_that_ran_is_shown_as_a_sum_of_every_chunk():
    def same_chunk(message, held):
        return {part for part in held if part[0] == message.tag}

    messages = messages_of(lambda comm: all_reduce(comm, torch.ones(6)), 3)
    start = [{(chunk, rank) for chunk in range(3)} for rank in range(3)]
    states = player.holdings(messages, start, same_chunk)
    axes = player.grid(messages, states, 2, "the sum", carries=same_chunk, summed=True)
    assert axes.get_title(loc="left") == "After step 2 of 4, 0 of 3 ranks hold the sum"
    assert [each.get_text() for each in axes.get_yticklabels()] == ["chunk 0", "chunk 1", "chunk 2"]
    shown = [text.get_text() for text in axes.texts]
    assert shown[:3] == ["$x_0$", "$x_0$ + $x_1$ + $x_2$", "$x_0$ + $x_2$"]
    assert all(set.union(*start) == held for held in states[-1])
