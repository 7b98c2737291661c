"""Which calls ranks are in, who answers with something else, and what it costs to agree."""

import random
from collections import defaultdict, deque

import pytest
import torch

from course.comm import CommMismatch, PeerLost
from course.comm.transport import group_id
from course.worlds import processes, run
from course.worlds.sockets import roll_calls
from course.worlds.sockets.messages import POLL_S, Kind
from course.worlds.sockets.roll_calls import ALL_AT_ONCE, RollCalls

GROUP, BEHIND = group_id(()), group_id(("background",))
SIZES = (*range(2, 20), 32, 33)
LARGE = 6  # real ranks: they speak in rounds


class Network:
    """Ranks whose messages arrive in an order drawn, those of each pair in their own."""

    def __init__(self, size, seed=0):
        self.draw, self.told = random.Random(seed), []
        self.lines, self.under_way = defaultdict(deque), []  # messages; a pair of ranks for each
        self.ranks = [RollCalls(rank, Line(self, rank)) for rank in range(size)]
        self.members = self.draw.sample(range(size), size)
        self.opened = {}

    def call(self, rank, text, number=1):
        """This rank says `text` of the call."""
        made = self.ranks[rank].open((GROUP, number), text, self.members)
        self.opened[rank] = made
        return made

    def all_call(self, texts, number=1):
        """All do, among the messages of others; what each rank has heard of all."""
        for rank in self.draw.sample(self.members, len(self.members)):
            self.call(rank, texts[rank], number)
            self.deliver(self.draw.randrange(4))
        self.deliver()
        return self.heard()

    def heard(self):
        done = {rank: call for rank, call in self.opened.items() if call.done}
        return {rank: call.said | {rank: call.text} for rank, call in done.items()}

    def close(self, *ranks):
        for rank in ranks:
            self.ranks[rank].close(self.opened[rank])

    def deliver(self, most=None):
        while self.under_way and most != 0:
            place = self.draw.randrange(len(self.under_way))
            self.under_way[place], self.under_way[-1] = self.under_way[-1], self.under_way[place]
            pair = self.under_way.pop()
            kind, text, call, number = self.lines[pair].popleft()
            if kind == Kind.AGREEMENT:
                self.ranks[pair[1]].hear_agreement(call, number, text)
            else:
                self.ranks[pair[1]].hear(pair[0], call, text, number)
            most = None if most is None else most - 1


class Line:
    def __init__(self, network, rank):
        self.network, self.rank = network, rank

    def tell(self, peer, kind, text, envelope, number):
        self.network.told.append((self.rank, kind))
        self.network.under_way.append((self.rank, peer))
        self.network.lines[self.rank, peer].append((kind, text, envelope[:2], number))


def messages(size):
    """A rank's messages in a call in which all agree."""
    return size - 1 if size <= ALL_AT_ONCE else (size - 1).bit_length()


@pytest.mark.parametrize("size", SIZES)
def test_to_agree_costs_each_rank_so_many_messages(size):
    for seed in range(4):
        network = Network(size, seed)
        for number in (1, 2):
            said = network.all_call(["sum\n"] * size, number)
            assert said == dict.fromkeys(range(size), dict.fromkeys(range(size), "sum\n"))
            network.close(*range(size))
        sent = [sum(teller == rank for teller, _ in network.told) for rank in range(size)]
        assert sent == [2 * messages(size)] * size
        assert not any(rank.said or rank.heard or rank.current for rank in network.ranks)


@pytest.mark.parametrize("size", SIZES)
def test_where_they_differ_all_hear_all(size):
    for seed in range(4):
        texts = [f"sum of {random.Random(seed).choice((1, size))}\n"] * size
        texts[seed % size] = "barrier\n"
        everything = dict(enumerate(texts))
        assert Network(size, seed).all_call(texts) == dict.fromkeys(range(size), everything)


def test_words_of_their_own_all_tell_all():
    texts = [f"split\nmine is {rank}" for rank in range(LARGE)]
    network = Network(LARGE)
    assert network.all_call(texts) == dict.fromkeys(range(LARGE), dict(enumerate(texts)))
    assert len(network.told) == LARGE * (LARGE - 1)


@pytest.mark.parametrize("size", SIZES[1:])
def test_nobody_is_through_before_all_have_spoken(size):
    network = Network(size)
    late, *others = network.members
    for rank in others:
        network.call(rank, "sum\n")
    network.deliver()
    assert network.heard() == {} and all(late in network.opened[r].needs for r in others)
    network.call(late, "sum\n")
    network.deliver()
    assert len(network.heard()) == size


@pytest.mark.parametrize("size", SIZES[1:])
def test_who_waits_too_long_hears_who_has_not_spoken(size, monkeypatch):
    network = Network(size)
    late, *others = network.members
    for rank in others:
        network.call(rank, "sum\n")
    network.opened[others[0]].late()
    network.deliver()
    assert [network.opened[rank].needs for rank in others] == [{late}] * (size - 1)
    if size > ALL_AT_ONCE:  # where one tells all, the others are given time to
        assert network.ranks[late].elsewhere() == {}
        now = roll_calls.time.monotonic()
        monkeypatch.setattr(roll_calls.time, "monotonic", lambda: now + 2 * POLL_S)
    assert network.ranks[late].elsewhere() == dict.fromkeys(others, (GROUP, 1))
    assert network.call(late, "sum\n").done  # it has heard all, and tells all at once
    told = [kind for teller, kind in network.told if teller == late]
    assert told.count(Kind.ROLL_CALL) == size - 1


def test_who_asks_late_is_told_that_all_have_agreed():
    """It must not wait for ranks that are through, whichever of its messages are under way."""
    network = Network(9)
    network.all_call(["sum\n"] * 9)
    network.close(*range(1, 9))
    network.opened[0].said.clear()  # as if its last message had not come yet
    network.opened[0].tell_all()
    network.deliver()
    assert network.opened[0].done


def test_who_leaves_tells_those_who_still_wait():
    network = Network(9)
    network.all_call(["sum\n"] * 9)
    network.close(*range(1, 9))
    network.opened[0].said.clear()
    network.ranks[5].leave()
    network.deliver()
    assert network.opened[0].done


def test_who_gives_up_has_spoken_all_the_same():
    network = Network(9)
    for rank in network.members[1:]:
        network.call(rank, "sum\n")
    gives_up = network.members[3]
    network.close(gives_up)
    network.call(network.members[0], "sum\n")
    network.deliver()
    assert set(network.heard()) == set(range(9)) - {gives_up}


def test_ranks_are_elsewhere_in_calls_that_this_one_has_not_come_to():
    calls = Network(3).ranks[0]
    calls.last_call[GROUP] = 3
    for number in (3, 4):
        calls.hear(number, (GROUP, number), "barrier\n")
    calls.hear(1, (BEHIND, 9), "in the background: its rank may still send\n")
    assert calls.elsewhere() == {4: (GROUP, 4)}


def test_who_answers_is_counted_in_and_answers_those_who_come_later():
    network = Network(3)
    calls = network.ranks[1]
    calls.hear(2, (GROUP, 5), "barrier #5\n")
    assert calls.answer([(GROUP, 5)], "recv from rank 2") == {2: "barrier #5"}
    calls.hear(0, (GROUP, 5), "barrier #5\n")
    answer = Kind.ROLL_CALL, "recv from rank 2\n", (GROUP, 5), 0
    assert network.lines == {(1, 2): deque([answer]), (1, 0): deque([answer])}
    assert calls.last_call[GROUP] == 5 and calls.elsewhere() == {}


def test_a_lost_rank_may_have_spoken_before(monkeypatch):
    """Then others know it; one that returned would have told."""
    network = Network(9)
    lost, returned, other = network.members[:3]
    waits = network.call(other, "sum\n")
    assert waits.gone({lost, returned}, {lost}) == {returned}
    assert {teller for teller, kind in network.told if kind == Kind.ROLL_CALL} == {other}
    monkeypatch.setattr(roll_calls.time, "monotonic", lambda: waits.told_s + 2 * POLL_S)
    assert waits.gone({lost}, {lost}) == {lost}
    assert Network(3).call(1, "sum\n").gone({2}, {2}) == {2}


# On real ranks


def counted(comm, calls):
    """The messages of so many calls, however slow this machine is."""
    roll_calls.RollCall.late = lambda call: None
    sender, told = comm._transport.sender, []
    tell = sender.tell
    sender.tell = lambda peer, kind, *rest: told.append(kind) or tell(peer, kind, *rest)
    for _ in range(calls):
        with comm.collective("nothing"):
            pass
    return len(told)


def test_real_ranks_send_so_many():
    on = processes(oversubscribe=True)
    assert run(counted, LARGE, 5, on=on) == [5 * messages(LARGE)] * LARGE


def one_does_something_else(comm, what):
    try:
        if comm.rank != 2:
            comm.barrier()
        elif what == "another call":
            comm.split(0)
        elif what == "a message":
            comm.recv(torch.zeros(1), 4)
    except (CommMismatch, PeerLost) as error:
        return str(error)


OTHERS = "ranks 0, 1, 3, 4, 5 are in barrier #1"
TOLD = {
    "another call": f"rank 2 is in split #1; {OTHERS}",
    "a message": f"rank 2 is in recv from rank 4 (float32 [1], tag 0); {OTHERS}",
}


@pytest.mark.parametrize("what", TOLD)
def test_real_ranks_hear_who_is_elsewhere(what):
    heard = run(one_does_something_else, LARGE, what, on=processes(oversubscribe=True))
    its_own = heard.pop(2)  # by then it may not have heard of all
    told = [each for each in heard if not each.startswith("rank 2 has returned from its function")]
    assert told and told == [TOLD[what]] * len(told)  # who is late finds that it has gone
    assert its_own.startswith(TOLD[what].partition(";")[0]) and its_own.endswith("in barrier #1")


def test_real_ranks_hear_who_has_returned():
    heard = run(one_does_something_else, LARGE, "nothing", on=processes(oversubscribe=True))
    gone = "rank 2 has returned from its function while rank {} was in barrier #1"
    assert heard == [None if rank == 2 else gone.format(rank) for rank in range(LARGE)]
