"""A rank of an imagined cluster: it has a clock of its own, computes in its seconds, and waits for
messages.

A rank's clock may be ahead of the cluster's: it runs on until it waits for something.  All that it
does lies in the cluster's future, so nothing comes too late.
"""

import math
import random
from collections import Counter

import torch

from course.comm.errors import CommError, CommMismatch
from course.comm.trace import Meter
from course.worlds.simulator.coroutines import Fibre
from course.worlds.simulator.deadlock import hopeless
from course.worlds.simulator.log import NOTHING, cause_of, pack_hold
from course.worlds.simulator.requests import Message, Receive, Sharing


class Died(BaseException):
    """This rank's time has come."""


class Imagined:
    """Rank number `rank` as its communicator sees it (a wire) and as the cluster moves it.

    `time` is its clock, `request` what it waits for, in the call `doing`, since `since`.
    """

    def __init__(self, rank, cluster, place, *, device, checked, slowness=1.0, dies_at=math.inf):
        self.rank = self.number = rank
        self.cluster, self.place, self.checked = cluster, place, checked
        self.device, self.meter, self.trace = torch.device(device), Meter(), cluster.events()
        self.time, self.slowness, self.dies_at = 0.0, slowness, dies_at
        self.flops, self.computed_bytes, self.holds, self.outgoing = 0, 0, bytearray(), {}
        self.request, self.doing, self.since, self.entry = None, None, 0.0, None
        self.trouble, self.ended, self.lost, self.lane, self.beside = None, False, False, 0, []
        self.mourned, self.last_call, self.routes = set(), Counter(), {}
        self.random = random.Random(f"{cluster.seed} {rank}")
        self.fibre = Fibre(lambda: cluster.live(self))

    # What its communicator asks of it

    def clock(self) -> float:
        """The seconds that this rank has lived."""
        return self.time

    def send_tensor(self, peer, envelope, x, synchronous):
        """Send `x`; the request is done when its last byte has left and, where `synchronous`, the
        receiver has a place for it."""
        dst = self if peer == self.rank else self.cluster.ranks[peer]
        route = self.routes.get(peer) or self._route_to(dst)
        message = Message(self, dst, route, envelope, x, synchronous and dst is not self)
        self.cluster.post.send(message)
        return message

    def receive_tensor(self, peers, envelope, out):
        """Make a place for a message."""
        receive = Receive(self, peers, envelope, out)
        self.cluster.post.post(receive)
        return receive

    def wait(self, request, doing):
        """Wait until `request` is done; `doing` says in words what that is.

        Raises CommTimeout, PeerLost, CommMismatch.
        """
        if not request.done:
            try:
                self._block(request, doing)
            except CommError:  # the program may go on without it
                self.cancel(request)
                raise
        if request.at > self.time:
            self.holds += pack_hold(self.time, request.at, request.cause)
            self._live_until(request.at)

    def cancel(self, request):
        """Expect no more of `request`; a message that is under way is not stopped."""
        if isinstance(request, Receive):
            self.cluster.post.withdraw(request)
        self.outgoing.pop(request, None)

    def roll_call(self, group, call, members, text, doing) -> list[str]:
        """Tell all `members` something about a call, and hear what they say, in their order.

        It takes no time, but all wait for the last to come.
        """
        sharing = self.cluster.shares.setdefault((group, call), Sharing(members))
        sharing.said[self.rank] = text
        sharing.wires.append(self)
        if not sharing.needs:
            del self.cluster.shares[group, call]
            last = max(sharing.wires, key=lambda wire: (wire.time, -wire.rank))
            sharing.cause = cause_of(last.number)
            for wire in sharing.wires:
                wire.released(sharing, last.time)
        self.wait(sharing, doing)
        return [sharing.said[member] for member in members]

    def native(self, comm):
        raise ValueError(
            f"rank {self.rank}: an imagined cluster has no backend of its own, "
            "only what is built from send and recv"
        )

    def node_memory(self, group):
        """None: what goes through memory would take no time."""

    def revoke(self, group, call, members, sentence):
        """Nobody is told yet."""

    def abort(self):
        """Nothing: the cluster knows that this rank has failed."""

    def background(self, group):
        """This wire for calls beside the rank's own work."""
        self.beside.append(self.cluster.sideline(self))
        return self.beside[-1]

    def finish(self):
        """Wait until all that was begun is over and all that was sent has left."""
        for companion in self.beside:
            companion.finish()
        for message in list(self.outgoing):
            self.wait(message, f"send to rank {message.dst.rank} ({message.envelope})")

    # What the cluster does with it

    def compute(self, seconds: float):
        """Be busy for so long, as this rank goes."""
        jitter = self.cluster.jitter
        if jitter:
            seconds *= 1 + jitter * self.random.expovariate(1)
        self._live_until(self.time + seconds * self.slowness)

    def released(self, request, at):
        """There is no need to wait for `request` any longer, from `at` on."""
        request.done, request.at = True, at
        self.outgoing.pop(request, None)
        if self.request is request:
            self.request = None
            self.cluster.ready.append(self)

    def wake(self, request):
        """Go on, if it is `request` that this rank waits for."""
        if self.request is request:
            self.request = None
            self.cluster.ready.append(self)

    def fail(self, error, at):
        """Go on with `error` instead of what this rank waits for."""
        if at > self.time:
            self.holds += pack_hold(self.time, at, NOTHING)
            self.time = at
        self.trouble = error
        self.wake(self.request)

    def refused(self, message, sentence):
        """The receiver has no place for `message`: this rank hears of it when it waits next."""
        self.outgoing.pop(message, None)
        if message.confirm:
            message.error = CommMismatch(sentence)
            self.wake(message)
        elif self.request is not None:
            self.fail(CommMismatch(sentence), self.cluster.agenda.now)
        else:
            self.trouble = CommMismatch(sentence)

    def _block(self, request, doing):
        """Let others run until `request` is done."""
        if not (self.trouble or request.error):
            self.request, self.doing, self.since = request, doing, self.time
            if self.cluster.living < len(self.cluster.ranks):
                self.trouble = hopeless(self)
            if self.trouble:
                self.request = None
            else:
                self.fibre.pause()
        error, self.trouble = self.trouble or request.error, None
        if error:
            raise error

    def _live_until(self, time):
        if time >= self.dies_at:
            self.time = max(self.time, self.dies_at)
            raise Died
        self.time = time

    def _route_to(self, peer):
        route = self.routes[peer.rank] = self.cluster.routes.route(self.place, peer.place)
        return route
