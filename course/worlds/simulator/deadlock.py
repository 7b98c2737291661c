"""When ranks wait for what does not come: lost peers, time-outs, and deadlocks told at once."""

from collections import Counter, defaultdict

from course.comm.errors import (
    CommError,
    CommMismatch,
    Deadlock,
    differing,
    listed,
    peer_lost,
    timed_out,
)
from course.comm.transport import in_background
from course.worlds.simulator.requests import Message, Receive, RollCall, TaskRequest


class Watchdog:
    """Which ranks of `simulation` have `ended`, and which of them are `lost`: they have failed.

    `reported` are the lost ranks that each context has been told of; before `next_check`, in the
    cluster's seconds, no time-out can be over.
    """

    def __init__(self, simulation, timeout):
        self.simulation, self.timeout, self.next_check = simulation, timeout, timeout
        self.ended, self.lost, self.reported = set(), set(), {}
        self.last_calls, self.revoked = defaultdict(Counter), {}

    @property
    def waiting(self) -> list:
        """The contexts that wait for something."""
        return [context for context in self.simulation.contexts if context.request is not None]

    def rank_ended(self, rank, lost):
        """A rank is no more: those who wait for it hear of it."""
        self.ended.add(rank)
        if lost:
            self.lost.add(rank)
        for context in self.waiting:
            error = self.peer_lost_error(context)
            if error:
                context.fail(error, self.simulation.queue.now)

    def peer_lost_error(self, context):
        """The error that says why what a context waits for can never be, if so."""
        request = context.request
        needs = request.waits_for(self.lost) - {context.rank}
        if not (over := needs & self.ended):
            return None
        reported = self.reported.setdefault(context, set())
        newly_lost = over & self.lost - reported
        nobody_left = over and (not request.any_of or over == needs)
        if newly_lost or nobody_left and not self._may_come(request):
            reported |= newly_lost
            peers = newly_lost or over
            return peer_lost(peers, bool(peers & self.lost), context.rank, context.operation)
        return None

    def revoke(self, key, sentence, at):
        """A rank has left the call `key`, (group, number): who waits within it hears why."""
        if key not in self.revoked:
            self.revoked[key] = sentence
            for context in self.waiting:
                if context.request.envelope[:2] == key:
                    context.fail(CommMismatch(sentence), at)

    def stop_if_revoked(self, request):
        """Raises CommMismatch if another rank has left the call that a request is a part of."""
        if request.envelope[:2] in self.revoked:
            raise CommMismatch(self.revoked[request.envelope[:2]])

    def _may_come(self, request) -> bool:
        return isinstance(request, Receive) and self.simulation.matcher.may_match(request)

    def is_due(self, next_time) -> bool:
        """Whether a time-out may be over before `next_time`."""
        return self.timeout is not None and next_time > self.next_check

    def time_out(self, next_time):
        """End the waits whose time is over before the next event, which is at `next_time`."""
        waiting = self.waiting
        first = min((context.since + self.timeout for context in waiting), default=next_time)
        if first >= next_time:
            self.next_check = min(first, next_time + self.timeout)
            return
        late = [context for context in waiting if context.since + self.timeout <= first]
        for context in late:
            if context.request.in_flight(first):
                context.since = first
        late = [context for context in late if context.since != first]
        if not any(self._tell_mismatch(context, first) for context in late):
            for context in late:
                context.fail(self._timed_out(context), first)

    def _timed_out(self, context) -> CommError:
        """What a context hears at its time-out; of a roll call what differs in it so far."""
        said = context.request.texts if isinstance(context.request, RollCall) else {}
        labels = {rank: text.partition("\n")[0] for rank, text in said.items()}
        if len(set(labels.values())) > 1:
            return CommMismatch(differing(labels))
        return timed_out(context.rank, self.timeout, context.operation)

    def break_deadlock(self):
        """Nothing is under way and all ranks wait: say why on every one of them."""
        waiting, now = self.waiting, self.simulation.queue.now
        if not any(self._tell_mismatch(context, now) for context in waiting):
            sentence = self._wait_cycle(waiting)
            for context in waiting:
                context.fail(Deadlock(sentence), now)

    def _tell_mismatch(self, context, at) -> bool:
        """Whether all peers that a context waits for are in collective calls that wait for it;
        then it answers these with its operation, and both sides hear of a mismatch."""
        waiting = self._waiting_in_calls(context) if _is_plain(context.request) else {}
        needs = context.request.waits_for(self.lost) - {context.rank}
        if not needs or not needs <= waiting.keys():
            return False
        labels = {context.rank: str(context.operation)}
        for key in {waiting[peer] for peer in needs}:
            roll_call, (group, number) = self.simulation.roll_calls[key], key
            labels |= {rank: text.partition("\n")[0] for rank, text in roll_call.texts.items()}
            self.last_calls[context.rank][group] = number
            roll_call.answer(context, f"{context.operation}\n")
            if roll_call.done:
                del self.simulation.roll_calls[key]
        context.fail(CommMismatch(differing(labels)), at)
        return True

    def _waiting_in_calls(self, context) -> dict:
        """{rank: call} of the ranks that wait in collective calls for the rank of a context."""
        calls = {}
        for key, roll_call in self.simulation.roll_calls.items():
            if in_background(key[0]) or context.rank in roll_call.texts:  # it may still answer
                continue
            if context.rank in roll_call.members:
                calls |= dict.fromkeys(roll_call.texts, key)
        return calls

    def _wait_cycle(self, waiting) -> str:
        """Who waits for whom in which call, round a cycle of the wait-for graph."""
        context, seen = waiting[0], []
        while context not in seen:
            seen.append(context)
            context = self._waits_for(context)
        cycle = seen[seen.index(context) :]
        told = "; ".join(
            f"rank {c.rank} waits for {listed(c.request.waits_for(self.lost))} in {c.operation}"
            for c in cycle
        )
        others = len(waiting) - len(cycle)
        return told + (f"; {others} more wait for these" if others else "")

    def _waits_for(self, context):
        """The context that another one waits for: of the same layer of background if that waits."""
        if isinstance(context.request, TaskRequest):
            return context.request.context
        needs = context.request.waits_for(self.lost) - {context.rank} or {context.rank}
        other = min(needs, key=lambda peer: (peer in self.ended, peer))
        layer, theirs = self._contexts_of(context.rank).index(context), self._contexts_of(other)
        alike = theirs[layer] if 0 < layer < len(theirs) else theirs[0]
        return alike if alike.request else theirs[0]

    def _contexts_of(self, rank) -> list:
        return [context for context in self.simulation.contexts if context.rank == rank]


def _is_plain(request) -> bool:
    """Whether, in checked mode, a request is a message outside of all collectives."""
    if isinstance(request, Message):
        return request.synchronous
    return isinstance(request, Receive) and request.owner.checked and not request.envelope.call
