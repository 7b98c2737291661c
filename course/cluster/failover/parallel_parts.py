"""What training in parallel keeps beside its model: what compression left out, the elastic centre,
shards.
"""

import torch

from course.cluster.failover.parts import described_tensors, load_buffers, own_buffers
from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.sharded import load_sharded, sharded_state

ALIKE = ("bases",)  # of what hooks keep: the same on all ranks, all else adds up


class Residuals:
    """What the `hook` of a DataParallel around `module` has kept of the gradients so far.

    The sum over ranks is what is still to come: of fewer ranks one takes over from several, of more
    the last begin with nothing.
    """

    def __init__(self, hook, module):
        self.hook, self.module = hook, module

    def describe(self):
        return [type(self.hook).__name__]

    def shared(self):
        generator = getattr(self.hook, "generator", None)
        return None if generator is None else generator.get_state()

    def own(self):
        return self.hook.state_dict(self.module)

    def load(self, shared, owns, rank, size):
        if shared is not None:
            self.hook.generator.set_state(shared)
        mine = [owns[theirs] for theirs in range(rank, len(owns), size)]
        kept = {kind: dict(alike) if kind in ALIKE else _sum([own[kind] for own in mine])
                for kind, alike in owns[0].items()}  # fmt: skip
        devices = {name: p.device for name, p in self.module.named_parameters()}
        for kind in kept.values():
            kind |= {name: x.to(devices[name]) for name, x in kind.items() if name in devices}
        self.hook.load_state_dict(kept, self.module)


class ElasticWorkers:
    """Every worker of an `ElasticAveraging` and the centre that all meet at once.

    Workers that there were not begin at the centre, at rest.  Cost: it waits for the last meeting.
    Raises ValueError for a served centre, which has no moment in common with its workers.
    """

    def __init__(self, averaging):
        if not isinstance(averaging.centre, SynchronousCentre):
            raise ValueError(
                f"rank {averaging.centre.comm.rank}: a checkpoint has the centre between two "
                f"meetings of all workers, and {type(averaging.centre).__name__} knows no such time"
            )
        self.averaging, self.module = averaging, averaging.weights.module

    def describe(self):
        return described_tensors(self.module)

    def shared(self):
        centre, named = self.averaging.centre, self.module.named_parameters()
        frozen = {name: p for name, p in named if not p.requires_grad}
        return {"centre": centre.pull(), "meetings": centre.meetings,
                "steps": self.averaging.steps, "frozen": frozen}  # fmt: skip

    def own(self):
        worker = {"flat": self.averaging.weights.flat, "velocity": self.averaging.velocity}
        return worker | {"module": own_buffers(self.module)}

    def load(self, shared, owns, rank, size):
        averaging, centre = self.averaging, self.averaging.centre
        averaging.steps, centre.meetings = shared["steps"], shared["meetings"]
        centre.known.copy_(shared["centre"])
        there = rank < len(owns)
        averaging.weights.flat.copy_(owns[rank]["flat"] if there else shared["centre"])
        averaging.velocity.copy_(owns[rank]["velocity"] if there else torch.zeros(()))
        for name, value in shared["frozen"].items():
            self.module.get_parameter(name).detach().copy_(value)
        load_buffers(self.module, [own["module"] for own in owns], rank, size)


class Shards:
    """A `Sharded` net and its optimiser, cut over any number of ranks; buffers are those of each
    rank, as in `Model`."""

    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer

    def describe(self):
        return described_tensors(self.net.module)

    def shared(self):
        return None

    def own(self):
        state = sharded_state(self.net, self.optimizer)
        return {"sharded": state, "module": own_buffers(self.net.module)}

    def load(self, shared, owns, rank, size):
        load_sharded(self.net, [own["sharded"] for own in owns], self.optimizer)
        load_buffers(self.net.module, [own["module"] for own in owns], rank, size)


def _sum(kept: list) -> dict:
    """{name: the sum of what has been kept of it} of some ranks, perhaps of none."""
    total = {}
    for one in kept:
        for name, x in one.items():
            total[name] = total[name] + x if name in total else x
    return total
