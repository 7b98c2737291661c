"""Did the messages of a run take the shape of a tree, of a ring?  Raises Wrong where not."""

import math

from course.classroom.problems import Wrong
from course.comm import Trace


def only_messages(trace: Trace, answer, allowed=()):
    """Refuse an answer that leaves its work to a collective instead of sending messages.

    A collective that the answer opens itself, with `comm.collective`, is its own work.
    """
    others = sorted({e.operation for e in trace.events} - {"send", "recv", *allowed})
    own = "collective" in getattr(getattr(answer, "__code__", None), "co_names", ())
    if others and not own:
        raise Wrong(f"{others[0]} does the work for you here: build it from messages.")
    if trace.ranks > 1 and not trace.messages:
        raise Wrong("no rank has sent a message that another received.")


def check_tree(where: str, trace: Trace):
    """Refuse a broadcast that takes more than p - 1 messages, or more than ceil(lg p) steps."""
    count, steps, least = len(trace.messages), trace.steps, math.ceil(math.log2(trace.ranks))
    if count > trace.ranks - 1:
        raise Wrong(f"{where}, {count} messages were sent where {trace.ranks - 1} are enough.")
    if steps <= least:
        return
    if len({message.src for message in trace.messages}) == 1:
        raise Wrong(
            f"{where}, the root does all the sending, in {steps} steps; {least} are enough."
        )
    raise Wrong(
        f"{where}, it takes {steps} steps where {least} are enough: in each step, all ranks that "
        f"have x should send it on."
    )


def check_ring(trace: Trace, count: int):
    """Refuse what is not `count` messages from each rank to its right neighbour, all at once."""
    for message in trace.messages:
        check_neighbours(message, trace.ranks)
    for rank, sent in enumerate(trace.sent_messages):
        if sent > count:
            raise Wrong(f"on {trace.ranks} ranks, rank {rank} sent {sent} messages, not {count}.")
        if sent < count:
            raise Wrong(
                f"on {trace.ranks} ranks, {sent} messages of rank {rank} were waited for, not "
                f"{count}: an isend is over when its wait() returns."
            )
    turns = 2 + trace.ranks % 2  # if some receive before they send, two even ones being neighbours
    if trace.steps > turns * count:
        raise Wrong(f"{trace.ranks} ranks took {trace.steps} steps: let all of them send at once.")


def check_neighbours(message, ranks: int):
    """Refuse a message that does not go to the right neighbour."""
    right, left = (message.src + 1) % ranks, (message.src - 1) % ranks
    if message.dst != right:
        what = "its left neighbour" if message.dst == left else "no neighbour"
        raise Wrong(f"on {ranks} ranks, rank {message.src} sends to rank {message.dst}: {what}.")
