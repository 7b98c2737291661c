"""The centre of elastic averaging on servers, each with a part: every worker asks and gives when it
likes (`ServedCentre`), and a server adds what arrives when it arrives (`serve_centre`).
"""

import contextlib

import torch

from course.comm import ANY, PeerLost
from course.parallel.flat_parameters import FlatParameters, broadcast_module

WORD, ANSWER, GIFT = range(3)  # tags
ASK, GIVE, DONE = range(3)  # words


class ServedCentre:
    """A centre whose parts are on the ranks `servers` of `comm`, as one of the workers, all other
    ranks, sees it.  A server adds what arrives when it arrives.

    Cost for a worker, n the weights' bytes: n to ask, n to give, one message a server each way and
    a word each, beside its own steps.  Raises PeerLost if a server was lost; a lost worker is not
    missed, but its last difference may have reached some of the servers only.
    """

    together = False

    def __init__(self, comm, servers):
        self.comm, self.servers = comm, _among(comm, servers)
        if comm.rank in self.servers:
            raise ValueError(f"rank {comm.rank} is a server, which calls serve_centre(), no worker")
        self.workers, self.root = comm.size - len(self.servers), self.servers[0]
        self.asked = self.given = None

    def start(self, x):
        """Begin at `x` [elements], the same on all ranks."""
        self.known = x.clone()
        self.parts = self.known.tensor_split(len(self.servers))

    def ask(self):
        """Let the centre come, beside this rank's own work; it is as old as this call."""
        self.asked = self.comm.submit(_hear, ASK, self.parts, self.servers)

    def values(self) -> torch.Tensor:
        """The centre [elements] as last asked for, which is now if it was not before."""
        if self.asked is None:
            self.ask()
        values, self.asked = self.latest(), None
        return values

    def give(self, difference):
        """Add `difference` [elements], beside this rank's own work; leave it as it is."""
        parts = difference.tensor_split(len(self.servers))
        self.given = self.comm.submit(_give, parts, self.servers)

    def latest(self) -> torch.Tensor:
        """The centre [elements] as this worker knows it."""
        for begun in (self.given, self.asked):
            if begun:
                begun.wait()
        return self.known

    def finish(self) -> torch.Tensor:
        """The centre [elements] once all workers have finished; nothing can be asked after it."""
        self.latest()
        self.comm.submit(_hear, DONE, self.parts, self.servers).wait()
        return self.known


def serve_centre(comm, module, servers) -> torch.Tensor:
    """Keep this server's part of the centre until all workers have finished or were lost.

    The part [elements] is returned; `module` is like the workers', and that of the first server
    is where all begin.  Memory: a copy of the part for each worker, so that all can be answered
    at once.  Raises CommTimeout if no worker says a word for so long.
    """
    servers, x = _among(comm, servers), FlatParameters(module).flat
    if comm.rank not in servers:
        raise ValueError(f"rank {comm.rank} is none of the servers {list(servers)}")
    broadcast_module(comm, module, servers[0])
    shard = x.tensor_split(len(servers))[servers.index(comm.rank)].clone()
    workers = [rank for rank in range(comm.size) if rank not in servers]
    comm.submit(_serve, shard, workers).wait()
    return shard


def overhead_s(pull_s, push_s, step_s, tau: int, prefetch: int) -> float:
    """Seconds that a worker with steps of `step_s` waits at each meeting with a served centre.

    What is pulled has the time of `prefetch` steps; before it the last push has to be through, so
    that none is waited for if both fit into `tau` steps.
    """
    return max(0.0, pull_s - prefetch * step_s, pull_s + push_s - tau * step_s)


def _hear(comm, word, parts, servers):
    """Say `word` to all servers and let their answers fill `parts`."""
    handles = [comm.irecv(part, server, ANSWER) for part, server in zip(parts, servers)]
    handles += [comm.isend(_spoken(word), server, WORD) for server in servers]
    for handle in handles:
        handle.wait()


def _give(comm, parts, servers):
    handles = [comm.isend(_spoken(GIVE), server, WORD) for server in servers]
    handles += [comm.isend(part, server, GIFT) for part, server in zip(parts, servers)]
    for handle in handles:
        handle.wait()


def _spoken(word):
    return torch.tensor([word], device="cpu")  # where it can be read in a world without values


def _serve(comm, shard, workers):
    """Do what workers ask for, one after another, until each has finished or was lost."""
    word, gift, answers = _spoken(ASK), torch.empty_like(shard), {}
    working, waiting = set(workers), set()
    while working:
        try:
            worker = comm.recv(word, ANY, WORD)
            if word.item() == GIVE:
                comm.recv(gift, worker, GIFT)
                shard.add_(gift)
            elif word.item() == ASK:
                _answer(comm, shard, worker, answers)
            else:
                working.remove(worker)
                waiting.add(worker)
        except PeerLost as error:
            gone = {comm.members.index(m) for m in error.ranks if m in comm.members}
            working, waiting = working - gone, waiting - gone
    for worker in sorted(waiting):
        with contextlib.suppress(PeerLost):
            _answer(comm, shard, worker, answers)
    for answer in answers.values():
        _sent(answer)


def _answer(comm, shard, worker, answers):
    """Send the centre's part as it is now; the worker has had the answer before."""
    if worker in answers:
        _sent(answers[worker])
    answers[worker] = comm.isend(shard.clone(), worker, ANSWER)


def _sent(answer):
    """Wait for an answer; who was lost needs none."""
    with contextlib.suppress(PeerLost):
        answer.wait()


def _among(comm, servers) -> tuple:
    """`servers`, if they are some ranks but not all, none of them twice."""
    servers = tuple(servers)
    once = 0 < len(set(servers)) == len(servers) < comm.size
    if not once or set(servers) - set(range(comm.size)):
        raise ValueError(
            f"rank {comm.rank}: servers are some of the ranks 0 to {comm.size - 1}, each once, and "
            f"at least one rank is left to work: not {list(servers)}"
        )
    return servers
