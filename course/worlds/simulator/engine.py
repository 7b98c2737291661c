"""An imagined cluster at work: ranks run until all of them wait, then time moves on."""

import contextlib
import gc
import math
from collections import deque

import cloudpickle
from greenlet import GreenletExit
from torch.autograd import Variable

from course.comm.communicator import Communicator
from course.comm.errors import PeerLost
from course.worlds.pickling import Failure, pack_result
from course.worlds.simulator.background_rank import Sideline
from course.worlds.simulator.coroutines import keeping_state, plain_state
from course.worlds.simulator.deadlock import break_deadlock, hopeless, time_out
from course.worlds.simulator.flows import Agenda
from course.worlds.simulator.log import Ledger
from course.worlds.simulator.matching import Post
from course.worlds.simulator.op_counter import Counter, outside
from course.worlds.simulator.random_state import Chance
from course.worlds.simulator.rank import Died, Imagined


class Clockwork:
    """One run of a packed `call` on `ranks` ranks of a `world`."""

    def __init__(self, world, ranks, call, *, timeout, checked, traced):
        self.world, self.call, self.timeout = world, call, timeout
        self.events = list if traced else lambda: None
        self.seed, self.jitter, self.routes = world.seed, world.jitter, world.routes
        self.agenda, self.ready, self.shares, self.running = Agenda(), deque(), {}, None
        self.ledger, self.look_up, self.living = Ledger(), timeout, ranks
        self.post = Post(self.agenda, self.ledger)
        for link in self.routes.links.values():
            link.flows.clear()  # of a run that was interrupted
        self.chance = Chance(self.whose)
        self.counter = Counter(self._charge, self.chance.claim)
        places = world.placement[:ranks]
        self.devices = [self.routes.graph.nodes[place]["device"] for place in places]
        self.nodes = [self.routes.graph.nodes[place].get("server", place) for place in places]
        self.ranks = [
            Imagined(rank, self, place, device=world.device, checked=checked,
                     slowness=world.slow.get(rank, 1.0), dies_at=world.dead.get(rank, math.inf))
            for rank, place in enumerate(places)
        ]  # fmt: skip
        self.courses = list(self.ranks)  # of events; a rank has more of them if it begins calls

    def sideline(self, wire):
        """A second course of events beside that of `wire`."""
        self.courses.append(Sideline(wire, len(self.courses)))
        return self.courses[-1]

    def whose(self):
        """The number of the rank that is running, None between them."""
        return None if self.running is None else self.running.rank

    def run(self, watch):
        """Let all ranks live; `watch` hears of their results and failures."""
        self.watch, engine = watch, Variable._execution_engine
        Variable._execution_engine = Engine(engine, self)
        try:
            with self.chance.apart(), rare_collections():
                keeping_state(self._run)
        finally:
            Variable._execution_engine = engine

    def _run(self):
        with self.counter:
            try:
                self.ready.extend(self.ranks)
                for wire in self.ranks:
                    if wire.dies_at < math.inf:
                        self.agenda.at(wire.dies_at, self._strike, wire)
                while self.living:
                    self._step()
            finally:
                for wire in self.courses:
                    self.running = wire
                    wire.fibre.end()
                self.running = None

    def _step(self):
        """Let every rank run that can; then move on to the next event."""
        agenda, flows = self.agenda, self.post.flows
        ready = self.ready
        while ready:
            self.running = wire = ready.popleft()
            wire.fibre.resume()
            self.running = None
        if flows.touched and not (agenda.times and agenda.times[0] <= agenda.now):
            flows.settle()
        if not agenda.times:
            break_deadlock(self)
        elif self.timeout is not None and agenda.times[0] > self.look_up:
            time_out(self)
        else:
            agenda.advance()
            self.post.sort()

    def live(self, wire):
        """The life of one rank."""
        plain_state()
        kind = "failure"
        try:
            comm = Communicator(wire, range(len(self.ranks)), self.nodes)
            fn, args, kwargs = cloudpickle.loads(self.call)
            value = pack_result(wire.rank, fn(comm, *args, **kwargs))
            comm.finish()
            kind = "result"
        except (GreenletExit, KeyboardInterrupt):  # the run is over
            raise
        except Died:
            value = _death(wire)
        except BaseException as error:  # a rank that calls sys.exit() has failed too
            value = Failure.of(wire.rank, outside(error))._replace(when=wire.time)
        wire.lost = kind == "failure"
        self.watch.handle([(wire.rank, kind, (value, wire.trace or []))])
        self.agenda.at(wire.time, self._ended, wire)

    def _charge(self, operation, flops, nbytes):
        """The rank that is running has done something."""
        wire = self.running
        if wire is not None:
            self.ranks[wire.rank].flops += flops
            self.ranks[wire.rank].computed_bytes += nbytes
            device = self.devices[wire.rank]
            wire.compute(self.world.charge(operation, flops, nbytes, device))

    def waiting(self) -> list:
        return [wire for wire in self.courses if wire.request is not None]

    def _strike(self, wire):
        if wire.request is not None:
            wire.fail(Died(), self.agenda.now)

    def _ended(self, wire):
        """A rank is no more: those who wait for it hear of it."""
        wire.ended, self.living = True, self.living - 1
        self._stop_beside(wire)
        if wire.lost:
            for message in [m for other in self.courses for m in other.outgoing]:
                if message.came is None and wire.rank in (message.src.rank, message.dst.rank):
                    self.post.cut(message)
        for other in self.waiting():
            error = hopeless(other)
            if error:
                other.fail(error, self.agenda.now)

    def _stop_beside(self, wire):
        for companion in wire.beside:
            companion.request = None
            if companion in self.ready:
                self.ready.remove(companion)
            self._stop_beside(companion)


class Engine:
    """torch's engine of backward passes, where each pass of a rank runs apart."""

    def __init__(self, engine, cluster):
        self._engine, self._cluster = engine, cluster

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run_backward(self, *args, **kwargs):
        wire, run = self._cluster.running, self._engine.run_backward
        if wire is None:
            return run(*args, **kwargs)
        return wire.fibre.backward(lambda: run(*args, **kwargs), self._cluster.counter)


def _death(wire) -> Failure:
    error = PeerLost(f"rank {wire.rank} died at {wire.time:g} s, as its world has it")
    return Failure.of(wire.rank, error)._replace(severity=0, trace=None, when=wire.time)


@contextlib.contextmanager
def rare_collections():
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
