"""When ranks wait for what does not come: time-outs, and deadlocks told at once."""

from course.comm.errors import CommMismatch, CommTimeout, PeerLost, differing, listed
from course.comm.transport import in_background
from course.worlds.simulator.requests import Receive, Turn


class Deadlock(CommTimeout):
    """Ranks wait for one another, and nothing is under way that could change that."""


def hopeless(wire):
    """The error that says why what a rank waits for can never be, if so."""
    request, ranks = wire.request, wire.cluster.ranks
    needs = request.needs
    over = {peer for peer in needs - {wire.rank} if ranks[peer].ended}
    newly_lost = {peer for peer in over if ranks[peer].lost} - wire.mourned
    nobody_left = over and (not request.any_of or over == needs - {wire.rank})
    if newly_lost or nobody_left and not wire.cluster.post.may_come(request):
        wire.mourned |= newly_lost
        return PeerLost(_absent(wire, newly_lost or over), newly_lost or over)
    return None


def _absent(wire, peers) -> str:
    lost = any(wire.cluster.ranks[peer].lost for peer in peers)
    many, verb = len(peers) > 1, ("was", "were") if lost else ("has", "have")
    end = "lost" if lost else f"returned from {'their functions' if many else 'its function'}"
    return f"{listed(peers)} {verb[many]} {end} while rank {wire.rank} was in {wire.doing}"


def time_out(cluster):
    """End the waits whose time is over before the next event."""
    next_event, waiting = cluster.agenda.times[0], cluster.waiting()
    first = min((wire.since + cluster.timeout for wire in waiting), default=next_event)
    if first >= next_event:
        cluster.look_up = min(first, next_event + cluster.timeout)
        return
    for wire in waiting:
        if wire.since + cluster.timeout <= first:
            if wire.request.under_way(first):
                wire.since = first
            else:
                waited = f"rank {wire.rank} waited {cluster.timeout:g} s in {wire.doing}"
                wire.fail(CommTimeout(waited), first)


def break_deadlock(cluster):
    """Nothing is under way and all ranks wait: say why on every one of them."""
    waiting, now = cluster.waiting(), cluster.agenda.now
    for wire in waiting:
        calls = _calls_of_others(cluster, wire)
        if calls and wire.request.needs - {wire.rank} <= calls.keys():
            sentence = differing({wire.rank: str(wire.doing)} | calls)
            for rank in (wire.rank, *calls):
                cluster.ranks[rank].fail(CommMismatch(sentence), now)
            return
    sentence = _circle(cluster, waiting)
    for wire in waiting:
        wire.fail(Deadlock(sentence), now)


def _calls_of_others(cluster, wire) -> dict:
    """The collective calls in which others wait for a rank that waits for a plain message."""
    request, calls = wire.request, {}
    if not (wire.checked and isinstance(request, Receive)) or request.envelope.call:
        return {}
    for (group, call), sharing in cluster.shares.items():
        if in_background(group):  # its rank may still send
            continue
        if wire.rank in sharing.members and call > wire.last_call[group]:
            calls |= {peer: text.partition("\n")[0] for peer, text in sharing.said.items()}
    return {peer: call for peer, call in calls.items() if cluster.ranks[peer].request is not None}


def _circle(cluster, waiting) -> str:
    """Who waits for whom in which call, round a circle."""
    wire, seen = waiting[0], []
    while wire not in seen:
        seen.append(wire)
        wire = _awaited(cluster, wire)
    circle = seen[seen.index(wire) :]
    told = "; ".join(f"rank {w.rank} waits for {listed(w.request.needs)} in {w.doing}"
                     for w in circle)  # fmt: skip
    others = len(waiting) - len(circle)
    return told + (f"; {others} more wait for these" if others else "")


def _awaited(cluster, wire):
    """The course of events that another one waits for: beside the rank's own if that one is."""
    if isinstance(wire.request, Turn):
        return wire.request.doer
    needs = wire.request.needs - {wire.rank} or {wire.rank}
    other = cluster.ranks[min(needs, key=lambda peer: (cluster.ranks[peer].ended, peer))]
    alike = [beside for beside in other.beside if beside.lane == wire.lane and beside.request]
    return alike[0] if alike else other
