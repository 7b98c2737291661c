"""The sentences that all worlds share."""

from course.comm.errors import Deadlock, differing, listed, misfit, peer_lost, timed_out


def test_ranks_in_words():
    assert (listed([2]), listed([3, 0, 1])) == ("rank 2", "ranks 0, 1, 3")


def test_the_odd_one_comes_first():
    said = differing({0: "a", 1: "b", 2: "a"})
    assert said == "rank 1 is in b; ranks 0, 2 are in a"


def test_a_misfit_names_both_ends():
    said = misfit(1, "float32 [4], tag 0", 0, "float32 [5], tag 0")
    assert said == (
        "rank 0 is in send to rank 1 (float32 [5], tag 0); "
        "rank 1 is in recv from rank 0 (float32 [4], tag 0)"
    )


def test_a_lost_peer_and_one_that_has_returned():
    one, two = peer_lost({3}, True, 0, "barrier #1"), peer_lost({1, 2}, False, 0, "barrier #1")
    assert (str(one), one.ranks) == ("rank 3 was lost while rank 0 was in barrier #1", (3,))
    assert str(two) == (
        "ranks 1, 2 have returned from their functions while rank 0 was in barrier #1"
    )


def test_a_time_out():
    assert str(timed_out(2, 0.5, "barrier #1")) == "rank 2 waited 0.5 s in barrier #1"
    assert isinstance(Deadlock(""), type(timed_out(0, 1, "")))
