"""The launcher's side of one run over several nodes: what is heard of their ranks."""

import os
import secrets
import selectors
import time

from course.comm.errors import CommError, PeerLost
from course.worlds.local.fork_server import LEADER
from course.worlds.local.workers import surroundings
from course.worlds.pickling import Failure
from course.worlds.slurm.node import HEAD

END_S = 15.0  # for the agents to end their ranks
LOSS_S = 2.0  # what ends all processes of a node may end its agent last


class NodeWorkers:
    """The ranks of a run, by `nodes` (of each rank the number of its node), in the manner of
    `Workers`: `poll()` tells what they say, `stop()` ends them all."""

    def __init__(self, allocation, nodes):
        self.allocation, self.agents, self.nodes = allocation, allocation.agents, nodes
        self.refusal, self.stopped, self.ended, self.silent = None, set(), set(), set()
        self.clocks = {agent.node: agent.clocks() for agent in self.agents}
        self.selector = selectors.DefaultSelector()
        for number, agent in enumerate(self.agents):
            self.selector.register(agent.socket, selectors.EVENT_READ, number)

    def called(self, rank: int) -> str:
        """A rank and where it lives."""
        node = self.agents[self.nodes[rank]].node
        silent = f" (which no longer answers: `sinfo --nodes={node}` may say why)"
        return f"rank {rank} on {node}" + silent * (self.nodes[rank] in self.silent)

    def start(self, job: dict, ranks: int):
        """Start the ranks of all nodes."""
        part = {
            "job": job | surroundings(),
            "run": secrets.token_bytes(16),
            "nodes": self.nodes,
            "doors": [agent.door for agent in self.agents],
        }
        for number, agent in enumerate(self.agents):
            agent.tell("run", part | {"node": number})

    def poll(self, timeout=None) -> list:
        """What the ranks say, as `Workers.poll`.  Raises CommError if there can be no more."""
        if self.refusal:
            raise CommError(self.refusal)
        said, deadline = self._poll(timeout), time.monotonic() + LOSS_S
        while self._may_be_lost(said) and (left := deadline - time.monotonic()) > 0:
            said += self._poll(left)
        self.ended.update(rank for rank, kind, _ in said if kind == "ended")
        return said

    def _may_be_lost(self, said) -> bool:
        """Whether what nodes have said may be the first sign of their loss, of which Slurm tells
        more: ranks were killed, or can be no more."""
        if any(kind == "failure" for _, kind, _ in said):
            self.refusal = None
        killed = {rank for rank, kind, _ in said if kind == "ended"} - self.ended
        return bool(killed or self.refusal)

    def _poll(self, timeout) -> list:
        said = []
        for key, _ in self.selector.select(timeout):
            agent = self.agents[key.data]
            for entry in sum(iter(agent.inbox.read, []), []):
                said += self._hear(key.data, *entry)
            if agent.inbox.ended:
                self.selector.unregister(agent.socket)
                said += self._lost(key.data)
        return said

    def _hear(self, number, rank, kind, value) -> list:
        """An entry in this machine's time."""
        if kind == "stopped":
            self.stopped.add(number)
        elif kind == "refused":
            self.refusal = f"node {self.agents[number].node}: {value}"
        elif kind in ("result", "failure"):
            self.ended.add(rank)
            ahead, day, _ = self.clocks[self.agents[number].node]
            what, events = value
            if kind == "failure":
                what = what._replace(when=what.when - day)
            events = [(*e[:5], e[5] - ahead, e[6] - ahead, *e[7:]) for e in events]
            return [(rank, kind, (what, events))]
        elif kind == "ended" and not os.WIFSIGNALED(value):
            self.ended.add(rank)
        return [(rank, kind, value)] if rank != LEADER else []

    def _lost(self, number) -> list:
        """A failure of each rank of a node whose agent has gone."""
        self.stopped.add(number)
        here = [rank for rank, node in enumerate(self.nodes) if node == number]
        left = [rank for rank in here if rank not in self.ended]
        self.ended.update(left)
        why = f"node {self.agents[number].node} was lost, with all that ran there"
        if words := self.allocation.last_said():
            why += f" (Slurm says: {words})"
        else:
            why += " (Slurm says nothing: its cable, its power? The next run asks for fresh nodes)"
        found = []
        for rank in left:
            failure = Failure.of(rank, PeerLost(why))._replace(severity=0, trace=None)
            found.append((rank, "failure", (failure._replace(when=time.time()), [])))
        return found

    def request_stack(self, rank):
        """Ask a rank that is still running where it is."""
        self.agents[self.nodes[rank]].tell(HEAD, "stack", rank)

    def stop(self) -> list:
        """End every rank; return once none is left, with what they still said."""
        for agent in self.agents:
            agent.tell(HEAD, "stop", None)
        last_words, deadline = [], time.monotonic() + END_S
        while len(self.stopped) < len(self.agents):
            if (left := deadline - time.monotonic()) <= 0:
                self.silent = {*range(len(self.agents))} - self.stopped
                self.allocation.close()  # a node that hangs: Slurm ends what is there
                break
            last_words += self._poll(left)
        self.selector.close()
        return last_words
