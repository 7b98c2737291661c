"""Plans of logarithmic all-reduces: who meets whom, and what halving leaves to whom."""

import pytest

from course.collectives.doubling import doubling_schedule, halvings


def drawn(p):
    """Rounds of meetings: a↔b, a→b where only a gives; the longest plan has them all."""
    plans = {rank: doubling_schedule(p, rank) for rank in range(p)}
    rounds = []
    while any(plans.values()):
        ready = {rank: plan[0] for rank, plan in plans.items() if plan}
        met = {
            rank: m for rank, m in ready.items() if m.peer in ready and ready[m.peer].peer == rank
        }
        fits = all(
            (m.sends, m.receives) == (met[m.peer].receives, met[m.peer].sends) for m in met.values()
        )
        assert met and fits
        one_way = any(not m.receives for m in met.values())
        met = {rank: m for rank, m in met.items() if not (one_way and m.sends and m.receives)}
        rounds.append(
            " ".join(
                sorted(
                    f"{r}{'↔' if m.receives else '→'}{m.peer}"
                    for r, m in met.items()
                    if m.sends and (not m.receives or r < m.peer)
                )
            )
        )
        for rank in met:
            plans[rank].pop(0)
    return " | ".join(rounds)


def test_partners_are_ever_further_away():
    assert drawn(1) == ""
    assert drawn(8) == "0↔1 2↔3 4↔5 6↔7 | 0↔2 1↔3 4↔6 5↔7 | 0↔4 1↔5 2↔6 3↔7"


def test_who_is_one_too_many_gives_first_and_takes_last():
    assert drawn(6) == "0→1 2→3 | 1↔3 4↔5 | 1↔4 3↔5 | 1→0 3→2"
    assert drawn(3) == "0→1 | 1↔2 | 1→0"


@pytest.mark.parametrize("p", range(1, 34))
def test_after_the_meetings_everybody_has_everything_once(p):
    plans, has = [doubling_schedule(p, rank) for rank in range(p)], [[rank] for rank in range(p)]
    while any(plans):
        for rank, plan in enumerate(plans):
            peer = plan and plan[0].peer
            if plan and plans[peer] and plans[peer][0].peer == rank:
                mine, theirs = plan.pop(0), plans[peer].pop(0)
                before = has[rank], has[peer]
                for one, meeting, got in ((rank, mine, before[1]), (peer, theirs, before[0])):
                    if meeting.receives:
                        has[one] = has[one] + got if meeting.add else got
    assert all(sorted(parts) == list(range(p)) for parts in has)


@pytest.mark.parametrize("p", range(1, 34))
def test_halving_leaves_each_rank_one_chunk_with_everybody_s_part_of_it(p):
    parts = [[{rank} for _ in range(p)] for rank in range(p)]  # from a rank's own chunk on
    for have, keep in halvings(p):
        assert 0 < have - keep <= keep < have
        sent = [row[keep:have] for row in parts]
        for rank, row in enumerate(parts):
            for i, got in enumerate(sent[(rank - keep) % p]):
                assert not row[i] & got  # nothing is added twice
                row[i] = row[i] | got
    assert all(row[0] == set(range(p)) for row in parts)
    assert len(halvings(p)) == (p - 1).bit_length()


def test_halvings_of_eight_and_of_five():
    assert halvings(8) == [(8, 4), (4, 2), (2, 1)]
    assert halvings(5) == [(5, 3), (3, 2), (2, 1)]
    assert halvings(1) == []
