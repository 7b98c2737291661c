"""Exercise of notebook 00: ranks that speak one after another."""

import re
from math import inf
from time import perf_counter

import torch

from course.classroom.answers import function, on_ranks
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong


def rank_order(comm, say):
    """Say this rank's number once all ranks before it have.  Cost: p - 1 messages in all."""
    word = torch.zeros(1)
    if comm.rank > 0:
        comm.recv(word, comm.rank - 1)
    say(f"I am rank {comm.rank} of {comm.size}")
    if comm.rank < comm.size - 1:
        comm.send(word, comm.rank + 1)


def check_rank_order(answer):
    function(answer)
    for ranks in (4, 1, 3):
        said, trace = on_ranks(listened, ranks, answer)
        check_words(said)
        only_messages(trace, answer)
        for rank in range(1, ranks):
            check_order(rank, [moment for ((moment, _),) in said], trace.messages)
        check_cost(ranks, len(trace.messages))
    return "one after the other, on 1, 3 and 4 ranks, and with p - 1 messages."


def listened(comm, answer) -> list:
    """What a rank says, and when, on the clock of its trace."""
    said = []

    def say(text):
        said.append((perf_counter(), str(text)))

    answer(comm, say)
    return said


def check_words(said: list):
    for rank, spoken in enumerate(said):
        if len(spoken) != 1:
            raise Wrong(f"rank {rank} of {len(said)} spoke {len(spoken)} times, not once.")
        text = spoken[0][1]
        if str(rank) not in re.findall(r"\d+", text):
            raise Wrong(f"rank {rank} said {text!r:.40}, and its number is not in it.")


def check_order(rank: int, spoke: list, messages: list):
    """Whether messages made `rank` wait for the rank before it; a right order alone is no proof."""
    before, here = rank - 1, spoke[rank]
    if news(messages, before, spoke[before]).get(rank, inf) <= here:
        return
    if news(messages, rank, here).get(before, inf) <= spoke[before]:
        raise Wrong(f"rank {before} waits until rank {rank} has spoken: the order is turned round.")
    if news(messages, before, -inf).get(rank, inf) <= here:
        raise Wrong(f"rank {before} passes the word on before it has spoken itself.")
    raise Wrong(f"rank {rank} does not wait to hear from rank {before}: their order is luck.")


def news(messages: list, source: int, moment: float) -> dict:
    """When each rank could first know, by any chain of messages, what `source` did at `moment`.

    Only times of one rank are compared with each other.
    """
    known = {source: moment}
    for message in messages * len(messages):  # no chain is longer
        if known.get(message.src, inf) <= message.start:
            known[message.dst] = min(known.get(message.dst, inf), message.end)
    return known


def check_cost(ranks: int, messages: int):
    if messages > ranks - 1:
        raise Wrong(
            f"the order is right, but {ranks} ranks sent {messages} messages "
            f"where {ranks - 1} are enough."
        )


EXERCISES = [
    Exercise(
        "rank_order",
        "write rank_order(comm, say): every rank calls say(text) once, with its number in the "
        "text, rank 0 first, then rank 1, and so on, whatever the number of ranks. Use comm.send "
        "and comm.recv only, and as few messages as possible.",
        check_rank_order,
        (
            "a rank that waits in comm.recv goes on only when somebody sends to it.",
            "let each rank wait for a word from the one before it, and give one to the next.",
            "mind both ends: rank 0 waits for nobody, the last rank sends to nobody, and a rank "
            "speaks between its recv and its send.",
        ),
        rank_order,
    )
]
