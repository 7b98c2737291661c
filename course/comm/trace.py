"""Who sent what to whom, and when: events of a run, exact meters, a picture for Perfetto."""

import json
import threading
from dataclasses import dataclass
from typing import NamedTuple

COUNTING = threading.Lock()


class Event(NamedTuple):
    """Something that one rank did: a `send` or `recv` with a peer, or a whole collective (peer -1).

    `start` and `end` are seconds on one clock for all ranks of a machine; `call` says of which
    collective a message is a part, `background` whether the rank did it beside its own work.
    """

    rank: int
    operation: str
    peer: int
    tag: int
    bytes: int
    start: float
    end: float
    call: str = ""
    background: bool = False


class Message(NamedTuple):
    """One message as both of its ends saw it: begun by `src` at `start`, in `dst`'s hands at
    `end`, in round `step` of its program."""

    step: int
    src: int
    dst: int
    tag: int
    bytes: int
    start: float
    end: float
    call: str = ""


@dataclass
class Meter:
    """What a rank has sent and received: payload only, fingerprints and headers not counted.  A
    collective that works in segments counts each segment as a message."""

    sent_bytes: int = 0
    sent_messages: int = 0
    received_bytes: int = 0
    received_messages: int = 0

    def count(self, operation: str, nbytes: int):
        with COUNTING:  # calls that run beside count too
            if operation == "send":
                self.sent_bytes += nbytes
                self.sent_messages += 1
            else:
                self.received_bytes += nbytes
                self.received_messages += 1


class Trace:
    """The events of all ranks; give one to `run(..., trace=trace)` and look at it afterwards."""

    def __init__(self):
        self.events, self.ranks = [], 0

    def add(self, ranks: int, events):
        """Take in the events of one run over `ranks` ranks."""
        self.ranks = max(self.ranks, ranks)
        self.events = sorted([*self.events, *(Event(*e) for e in events)], key=lambda e: e.start)

    @property
    def sent_bytes(self) -> list[int]:
        """Payload bytes sent, by rank."""
        return [sum(e.bytes for e in self._sent_by(rank)) for rank in range(self.ranks)]

    @property
    def sent_messages(self) -> list[int]:
        """Messages sent, by rank."""
        return [len(self._sent_by(rank)) for rank in range(self.ranks)]

    @property
    def steps(self) -> int:
        """Rounds that the messages need if a rank sends one and receives one at a time."""
        return max((message.step for message in self.messages), default=0)

    @property
    def messages(self) -> list[Message]:
        """Sends joined with their receives, each in the earliest round that its two ends allow.

        A message leaves at least one round after the last one that its sender sent, or had
        received, before; its receiver takes one message a round.
        """
        return _in_rounds(_joined(self.events))

    def save(self, path):
        """Write the events as Chrome trace JSON, one row a rank, which Perfetto opens."""
        with open(path, "w") as file:
            json.dump({"traceEvents": [_chrome(e) for e in self.events]}, file)

    def _sent_by(self, rank):
        return [e for e in self.events if e.operation == "send" and e.rank == rank]


def _joined(events):
    """Pairs (send, recv): the n-th receive of a source, target, tag and call is its n-th send's."""
    waiting, pairs = {}, []
    for event in events:
        if event.operation == "send":
            key = (event.rank, event.peer, event.tag, event.bytes, event.call)
            waiting.setdefault(key, []).append(event)
    for event in events:
        if event.operation == "recv":
            key = (event.peer, event.rank, event.tag, event.bytes, event.call)
            if waiting.get(key):
                pairs.append((waiting[key].pop(0), event))
    return pairs


def _in_rounds(pairs) -> list[Message]:
    """Pairs as messages with their rounds, sorted by round."""
    last_sent, received, busy, messages = {}, {}, {}, []
    for send, recv in sorted(pairs, key=lambda pair: pair[0].start):
        known = [step for end, step in received.get(send.rank, []) if end <= send.start]
        step = 1 + max([last_sent.get(send.rank, 0), *known])
        while step in busy.setdefault(recv.rank, set()):
            step += 1
        busy[recv.rank].add(step)
        last_sent[send.rank] = step
        received.setdefault(recv.rank, []).append((recv.end, step))
        messages.append(Message(step, send.rank, recv.rank, send.tag, send.bytes,
                                send.start, recv.end, send.call))  # fmt: skip
    return sorted(messages)


def _chrome(event) -> dict:
    peer = {"send": "to", "recv": "from"}.get(event.operation)
    name = f"{event.operation} {peer} {event.peer}" if peer else event.operation
    return {
        "name": name, "cat": event.operation, "ph": "X", "pid": 0, "tid": event.rank,
        "ts": event.start * 1e6, "dur": (event.end - event.start) * 1e6,
        "args": {"bytes": event.bytes, "tag": event.tag, "call": event.call},
    }  # fmt: skip
