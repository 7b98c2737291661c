"""A run on an imagined cluster: ranks run until all of them wait, then time moves on."""

import contextlib
import functools
import gc
import math
from collections import deque

from greenlet import GreenletExit, getcurrent

from course.comm.errors import PeerLost
from course.comm.trace import Meter
from course.worlds.pickling import OURS, Failure, pack_result
from course.worlds.simulator.background_rank import SimulatedBackground
from course.worlds.simulator.context import Context, Processor, RankDied
from course.worlds.simulator.deadlock import Watchdog
from course.worlds.simulator.events import Event, EventQueue
from course.worlds.simulator.matching import Matcher
from course.worlds.simulator.op_counter import OpCounter, user_traceback
from course.worlds.simulator.random_state import PerRankRandom
from course.worlds.simulator.rank import SimulatedTransport
from course.worlds.simulator.real_time import LimitReached
from course.worlds.simulator.recording import Compute, RecordedTransport
from course.worlds.simulator.torch_state import BackwardEngine, keep_state, set_initial_state


class Simulation:
    """One run of `program(transport)` on `ranks` ranks of a `world`; `supervisor` hears of their
    ends, and a `recording`, if there is one, of all that they do.

    `contexts` are in the order of their numbers in the log: the ranks' own come first.
    """

    def __init__(self, world, ranks, program, supervisor, *, timeout, checked, traced, recording):
        self.world, self.program, self.supervisor = world, program, supervisor
        self.recording = recording
        self.queue, self.ready, self.running = EventQueue(), deque(), None
        self.matcher, self.watchdog = Matcher(self.queue), Watchdog(self, timeout)
        self.random, self.roll_calls, self.contexts = PerRankRandom(self), {}, []
        for link in world.routes.links.values():
            link.flows.clear()  # of a run that was interrupted
        self.transports = [self._transport(rank, checked, traced) for rank in range(ranks)]

    def _transport(self, rank, checked, traced) -> SimulatedTransport:
        world, trace = self.world, [] if traced else None
        device = world.routes.graph.nodes[world.placement[rank]]["device"]
        slowdown, seed = world.slow.get(rank, 1.0), f"{world.seed} {rank}"
        processor = Processor(device, slowdown, world.jitter, seed)
        context = self.add_context(rank, processor, functools.partial(self._run_rank, rank))
        options = {"device": world.device, "checked": checked, "meter": Meter(), "trace": trace}
        if self.recording is not None:
            return RecordedTransport(self, context, recording=self.recording, **options)
        return SimulatedTransport(self, context, **options)

    def add_context(self, rank, processor, body) -> Context:
        dies_at = self.world.dead.get(rank, math.inf)
        self.contexts.append(Context(self, rank, len(self.contexts), processor, dies_at, body))
        return self.contexts[-1]

    def add_background(self, transport) -> SimulatedBackground:
        return SimulatedBackground(transport)

    def route(self, src, dst):
        """The links between two ranks."""
        return self.world.routes.route(self.world.placement[src], self.world.placement[dst])

    @property
    def current_rank(self):
        """The number of the rank that is running, None between them."""
        return None if self.running is None else self.running.rank

    def run(self):
        """Let all ranks live."""
        counter = OpCounter(self)
        with self.random.isolated(), _rare_collections(), BackwardEngine(self, counter):
            keep_state(functools.partial(self._run, counter))

    def _run(self, counter):
        with counter:
            try:
                self.ready.extend(self.contexts)
                for context in self.contexts:
                    if context.dies_at < math.inf:
                        self.queue.schedule(context.dies_at, Event(context.die))
                while len(self.watchdog.ended) < len(self.transports):
                    self._step()
            finally:
                for context in self.contexts:
                    self.ready.clear()
                    self.running = context
                    context.coroutine.end()
                self.running = None

    def _step(self):
        """Let every rank run that can; then move on to the next event."""
        while self.ready:
            self.running = self.ready.popleft()
            self.running.coroutine.resume()
            self.running = None
        queue, flows = self.queue, self.matcher.flows
        next_time = queue.next_time
        if flows.changed and (next_time is None or next_time > queue.now):
            flows.recompute_rates()
            next_time = queue.next_time
        if next_time is None:
            self.watchdog.break_deadlock()
        elif self.watchdog.is_due(next_time):
            self.watchdog.time_out(next_time)
        else:
            queue.advance()
            if self.matcher.dirty:
                self.matcher.match_any_source()

    def switch(self):
        """Let the next rank run that can; time move on if there is none.

        A rank that has not begun yet is begun by `_step`: a coroutine takes over the depth of the
        stack of the one that begins it.
        """
        ready = self.ready
        if ready and ready[0].coroutine.greenlet:
            context = self.running = ready.popleft()
            context.coroutine.greenlet.switch()
        else:
            getcurrent().parent.switch()

    def _run_rank(self, rank):
        """The life of one rank."""
        set_initial_state()
        transport, context, kind = self.transports[rank], self.contexts[rank], "failure"
        try:
            value, kind = pack_result(rank, self.program(transport)), "result"
        except (GreenletExit, KeyboardInterrupt):  # the run is over
            raise
        except LimitReached as error:
            stack = _failure(context, error).stack
            self.supervisor.stacks[rank] = [f for f in stack if not f[0].startswith(OURS)]
            raise
        except RankDied:
            value = _death(context)
        except BaseException as error:  # a rank that calls sys.exit() has failed too
            value = _failure(context, error)
        self._hear(rank, value, kind)
        end = functools.partial(self.rank_ended, rank, kind == "failure")
        self.queue.schedule(context.time, Event(end))

    def _hear(self, rank, value, kind="failure"):
        self.supervisor.handle([(rank, kind, (value, self.transports[rank].trace or []))])

    def rank_ended(self, rank, lost):
        """A rank is no more, nor what it has begun; what a lost rank has on its way never comes."""
        for context in self.contexts:
            if context.rank == rank:
                context.request = None
                if context in self.ready:
                    self.ready.remove(context)
        if lost:
            self.matcher.drop_all(rank, self.transports)
        self.watchdog.rank_ended(rank, lost)

    def charge(self, operation, flops, nbytes):
        """The rank that is running has done something."""
        context = self.running
        if context is not None:
            processor = context.processor
            processor.flops += flops
            processor.computed_bytes += nbytes
            if self.recording is not None:
                self.recording.events[context.rank].append(Compute(operation, flops, nbytes))
            seconds = self.world.charge(operation, flops, nbytes, processor.device)
            context.live_until(context.time + processor.seconds(seconds))


def _failure(context, error) -> Failure:
    return Failure.of(context.rank, user_traceback(error))._replace(when=context.time)


def _death(context) -> Failure:
    error = PeerLost(f"rank {context.rank} died at {context.time:g} s, as its world has it")
    return Failure.of(context.rank, error)._replace(severity=0, trace=None, when=context.time)


@contextlib.contextmanager
def _rare_collections():
    """Millions of messages are no garbage: looking for some among them again and again would take
    as long as all the rest."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
