"""Draw the rounds of one weird trick: when a rank computes, and what travels beside it."""

from course import worlds
from course.classroom import timeline
from course.classroom.trick_runs import round_moments
from course.comm import Trace


def lanes(network, scheme, cluster, ranks=4) -> dict:
    """What rank 0 of an imagined cluster computes in the rounds of a `scheme`, and what travels
    beside, each with the number of its round, as two lanes in ms from when its weights are made;
    the dense layers are the second part of `network()`.  Labels, a few bytes, are left out."""
    trace, world = Trace(), worlds.simulated(cluster, device="meta")
    where = {"on": world, "trace": trace, "checked": False}
    ready, *moments = worlds.run(round_moments, ranks, network, scheme, **where)[0]
    took = [1e3 * (moment - ready) for moment in moments]
    spans = zip(took[::2], took[1::2], strict=True)
    computed = [timeline.Piece("a round", *span, str(n)) for n, span in enumerate(spans, 1)]
    calls = [e for e in trace.events if e.rank == 0 > e.peer and e.background and "float" in e.call]
    beside = [timeline.Piece(what, 1e3 * (e.start - ready), 1e3 * (e.end - ready), str(n))
              for what, back in (("images come", False), ("gradients return", True))
              for n, e in enumerate([e for e in calls if back == ("reduce" in e.operation)], 1)
              ]  # fmt: skip
    return {f"({scheme}) computes": computed, f"({scheme}) network": beside}


def draw(by_scheme, title):
    """The lanes of several schemes {scheme: `lanes`}, one below the other; returns the axes."""
    rows = {name: lane for each in by_scheme.values() for name, lane in each.items()}
    return timeline.lanes(rows, title, "time (ms)")


def end_ms(rows) -> float:
    """When the last piece of `lanes` is done."""
    return max(piece.end for lane in rows.values() for piece in lane)
