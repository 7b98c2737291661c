"""A rank of an imagined cluster as its communicator sees it: the transport of the simulator."""

from collections import Counter

import torch

from course.comm.errors import CommError
from course.worlds.simulator.context import Context
from course.worlds.simulator.requests import Message, Receive, RollCall


class SimulatedTransport:
    """A rank's way to the others, in one of its contexts; `outgoing` are the messages that are not
    done."""

    def __init__(self, simulation, context: Context, *, device, checked, meter, trace):
        self.simulation, self.context, self.rank = simulation, context, context.rank
        self.matcher, self.device, self.checked = simulation.matcher, torch.device(device), checked
        self.meter, self.trace, self.outgoing, self.routes = meter, trace, {}, {}
        self.backgrounds = []

    @property
    def last_call(self) -> Counter:
        """By group, the last call that this rank has taken part in, or answered otherwise."""
        return self.simulation.watchdog.last_calls[self.rank]

    def clock(self) -> float:
        """The seconds that this rank has lived."""
        return self.context.time

    def send_tensor(self, peer, envelope, x, synchronous) -> Message:
        """Send `x`.  The request is done when its last byte has left and, where `synchronous`, the
        receiver has a place for it."""
        route = self.routes.get(peer)
        if route is None:
            route = self.routes[peer] = self.simulation.route(self.rank, peer)
        message = Message(self, peer, route, envelope, x, synchronous and peer != self.rank)
        self.matcher.send(message)
        return message

    def receive_tensor(self, peers, envelope, out) -> Receive:
        """Post a receive into `out`."""
        receive = Receive(self, peers, envelope, out)
        self.matcher.post(receive)
        return receive

    def wait(self, request, operation):
        """Wait until `request` is done; `operation` says in words what that is.

        Raises CommTimeout, PeerLost, CommMismatch.
        """
        context = self.context
        if not request.done:
            watchdog = self.simulation.watchdog
            try:
                if watchdog.revoked:
                    watchdog.stop_if_revoked(request)
                context.block(request, operation)
            except CommError:  # the program may go on without it
                self.cancel(request)
                raise
        if request.at > context.time:
            context.wait_until(request.at, request.cause)

    def cancel(self, request):
        """Expect no more of `request`; a message that is under way is not stopped."""
        if isinstance(request, Receive):
            self.matcher.cancel(request)
        self.outgoing.pop(request, None)

    def roll_call(self, group, call, members, text, operation) -> list[str]:
        """Tell all `members` something about a call, and hear what they say, in their order.

        It takes no time, but all wait for the last to come.
        """
        roll_calls = self.simulation.roll_calls
        roll_call = roll_calls.setdefault((group, call), RollCall(members))
        roll_call.answer(self.context, text)
        if roll_call.done:
            del roll_calls[group, call]
        self.wait(roll_call, operation)
        return [roll_call.texts[member] for member in members]

    def native(self, comm):
        raise ValueError(
            f"rank {self.rank}: an imagined cluster has no backend of its own, "
            "only what is built from send and recv"
        )

    def revoke(self, group, call, members, sentence):
        """Let whoever waits within this call, now or later, raise CommMismatch(sentence)."""
        self.simulation.watchdog.revoke((group, call), sentence, self.context.time)

    def node_memory(self, group):
        """None: what goes through memory would take no time."""

    def abort(self):
        """Nothing: the cluster knows that this rank has failed."""

    def background(self, group):
        """The transport of this rank's calls in the background."""
        self.backgrounds.append(self.simulation.add_background(self))
        return self.backgrounds[-1]

    def finish(self):
        """Wait until all that was submitted is over and all that was sent has left."""
        for background in self.backgrounds:
            background.finish()
        for message in list(self.outgoing):
            self.wait(message, f"send to rank {message.dst} ({message.envelope})")
