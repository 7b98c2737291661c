"""Ranks in order: by messages, not by luck."""

import time

import torch

from course.classroom.problems.p00_start_here import news, rank_order
from course.comm.trace import Message
from tests.classroom.gallery import Gallery, gallery_tests


def stub(comm, say):
    """Say this rank's number once all ranks before it have."""
    ...


def backwards_in_code(comm, say):
    word = torch.empty(3, dtype=torch.int64)
    last = comm.rank == comm.size - 1
    _ = comm.rank == 0 or comm.recv(word, comm.rank - 1, tag=5)
    say(comm.rank)
    _ = last or comm.isend(word, comm.rank + 1, tag=5).wait()


def by_luck(comm, say):
    say(comm.rank)


def by_sleep(comm, say):
    time.sleep(comm.rank / 100)
    say(comm.rank)
    word = torch.zeros(1)
    if comm.rank:
        comm.send(word, 0)
    else:
        for other in range(1, comm.size):
            comm.recv(word, other)


def word_before_speech(comm, say):
    word = torch.zeros(1)
    if comm.rank > 0:
        comm.recv(word, comm.rank - 1)
    if comm.rank < comm.size - 1:
        comm.send(word, comm.rank + 1)
    say(comm.rank)


def turned_round(comm, say):
    word = torch.zeros(1)
    if comm.rank < comm.size - 1:
        comm.recv(word, comm.rank + 1)
    say(comm.rank)
    if comm.rank > 0:
        comm.send(word, comm.rank - 1)


def by_barriers(comm, say):
    for rank in range(comm.size):
        if rank == comm.rank:
            say(rank)
        comm.barrier()


def one_speaks_for_all(comm, say):
    word = torch.tensor(comm.rank)
    if comm.rank > 0:
        return comm.send(word, 0)
    say(0)
    for other in range(1, comm.size):
        comm.recv(word, other)
        say(int(word))


def nameless(comm, say):
    say("hello")


def through_rank_0(comm, say):
    word = torch.zeros(1)
    if comm.rank > 0:
        comm.recv(word, 0)
        say(comm.rank)
        return comm.send(word, 0)
    say(0)
    for other in range(1, comm.size):
        comm.send(word, other)
        comm.recv(word, other)


def no_beginning(comm, say):
    word = torch.zeros(1)
    comm.recv(word, (comm.rank - 1) % comm.size)
    say(comm.rank)
    comm.send(word, (comm.rank + 1) % comm.size)


def no_end(comm, say):
    word = torch.zeros(1)
    if comm.rank > 0:
        comm.recv(word, comm.rank - 1)
    say(comm.rank)
    comm.send(word, comm.rank + 1)


def for_four_ranks(comm, say):
    word = torch.zeros(1)
    if comm.rank > 0:
        comm.recv(word, comm.rank - 1)
    say(comm.rank)
    if comm.rank < 3 and comm.size > 1:
        comm.send(word, comm.rank + 1)


GALLERIES = [
    Gallery(
        "rank_order",
        stub,
        [rank_order, backwards_in_code],
        {
            "no rank has sent a message that another received.": by_luck,
            "rank 1 does not wait to hear from rank 0: their order is luck.": by_sleep,
            "rank 0 passes the word on before it has spoken itself.": word_before_speech,
            "rank 0 waits until rank 1 has spoken: the order is turned round.": turned_round,
            "barrier does the work for you here: build it from messages.": by_barriers,
            "rank 0 of 4 spoke 4 times, not once.": one_speaks_for_all,
            "rank 0 said 'hello', and its number is not in it.": nameless,
            "4 ranks sent 6 messages where 3 are enough.": through_rank_0,
            "the ranks wait for one another (on 4 ranks)": no_beginning,
            "ValueError: rank 3 cannot send to rank 4: the ranks are 0 to 3": no_end,
            "ValueError: rank 2 cannot send to rank 3: the ranks are 0 to 2": for_four_ranks,
            "a function is wanted, without calling it, not None.": None,
        },
    )
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_news_travels_only_by_messages_sent_after_it():
    messages = [Message(2, 1, 2, 0, 4, 3.0, 4.0), Message(1, 0, 1, 0, 4, 1.0, 2.0)]
    assert news(messages, 0, 0.5) == {0: 0.5, 1: 2.0, 2: 4.0}
    assert news(messages, 0, 1.5) == {0: 1.5}
    assert news(messages, 1, 0.0) == {1: 0.0, 2: 4.0}
