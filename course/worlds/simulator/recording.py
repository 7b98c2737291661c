"""What ranks did, without a time: recorded on one imagined cluster, replayed on others in seconds.

    world = simulated(cluster, device="meta", record=True)
    run(step, 64, on=world, checked=False)
    report = simulated(another).replay(world.recording)

What a program computes and sends does not hang on how fast that is, as long as it asks no clock
and receives from no «any».  Source: Desprez, Markomanolis, Quinson & Suter 2011 (time-independent
traces).
"""

from typing import NamedTuple

import torch

from course.comm.transport import Envelope
from course.worlds.simulator.rank import SimulatedTransport


class Compute(NamedTuple):
    """An operation of so many flop, which reads and writes so many bytes."""

    operation: str
    flops: float
    nbytes: int


class Send(NamedTuple):
    """A message begun: number `request` of what its rank waits for."""

    request: int
    peer: int
    envelope: Envelope


class Post(NamedTuple):
    """A receive posted."""

    request: int
    peer: int
    envelope: Envelope


class Wait(NamedTuple):
    """A message or receive waited for."""

    request: int


class Recording:
    """`events` of every rank, in its program's order."""

    def __init__(self, ranks: int):
        self.events = [[] for _ in range(ranks)]

    @property
    def ranks(self) -> int:
        return len(self.events)

    def flops(self) -> float:
        """Of all ranks together."""
        each = (event for events in self.events for event in events if isinstance(event, Compute))
        return sum(event.flops for event in each)

    def sent_bytes(self) -> list[int]:
        """By rank."""
        return [sum(event.envelope.nbytes for event in events if isinstance(event, Send))
                for events in self.events]  # fmt: skip

    def without_overlap(self) -> "Recording":
        """The same program, but for one thing: nothing is computed while a receive is open."""
        other = Recording(self.ranks)
        other.events = [list(_receives_first(events)) for events in self.events]
        return other

    def with_bytes(self, factor: float) -> "Recording":
        """The same with messages `factor` times as long, such as 0.5 for half precision."""
        other = Recording(self.ranks)
        other.events = [[_longer(event, factor) for event in events] for events in self.events]
        return other

    def play(self, transport):
        """Do on a rank of an imagined cluster what the same rank did."""
        requests = {}
        for event in self.events[transport.rank]:
            match event:
                case Compute():
                    transport.simulation.charge(*event)
                case Send(number, peer, envelope):
                    requests[number] = transport.send_tensor(peer, envelope, NOTHING, False), event
                case Post(number, peer, envelope):
                    request = transport.receive_tensor((peer,), envelope, NOTHING)
                    requests[number] = request, event
                case Wait(number) if number in requests:  # not waited for before
                    _wait(transport, *requests.pop(number))


NOTHING = torch.empty(0, device="meta")


def _wait(transport, request, event):
    transport.wait(request, event)
    operation = "send" if isinstance(event, Send) else "recv"
    transport.meter.count(operation, event.envelope.nbytes)


def _receives_first(events):
    posted = []
    for event in events:
        if isinstance(event, Compute):
            yield from map(Wait, posted)
            posted = []
        if isinstance(event, Post):
            posted.append(event.request)
        yield event


def _longer(event, factor):
    if not isinstance(event, Send | Post):
        return event
    envelope = event.envelope
    return event._replace(envelope=envelope._replace(nbytes=round(envelope.nbytes * factor)))


class RecordedTransport(SimulatedTransport):
    """A transport that also writes down what it is asked for."""

    def __init__(self, simulation, context, *, recording, **options):
        super().__init__(simulation, context, **options)
        self.events, self.numbers = recording.events[self.rank], {}

    def send_tensor(self, peer, envelope, x, synchronous):
        if synchronous:
            raise ValueError(f"rank {self.rank}: a run is recorded with checked=False, so that no "
                             "send waits for its receiver")  # fmt: skip
        request = super().send_tensor(peer, envelope, x, synchronous)
        self.events.append(Send(self._number(request), peer, envelope))
        return request

    def receive_tensor(self, peers, envelope, out):
        if len(peers) > 1:
            raise ValueError(f"rank {self.rank}: a receive from any rank takes what comes first, "
                             "on another cluster something else: it is not recorded")  # fmt: skip
        request = super().receive_tensor(peers, envelope, out)
        self.events.append(Post(self._number(request), peers[0], envelope))
        return request

    def wait(self, request, operation):
        super().wait(request, operation)
        number = self.numbers.pop(request, None)
        if number is not None:
            self.events.append(Wait(number))

    def roll_call(self, group, call, members, text, operation):
        raise ValueError(f"rank {self.rank}: what ranks tell one another may decide what they do "
                         f"({text}): it is not recorded; run with checked=False")  # fmt: skip

    def background(self, group):
        raise ValueError(f"rank {self.rank}: calls in the background are not recorded")

    def _number(self, request) -> int:
        self.numbers[request] = len(self.events)
        return len(self.events)
