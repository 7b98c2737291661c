"""Gossip: ranks reach their mean by averaging with neighbours in a graph; nobody is in charge.

`gossip` only averages, `DecentralisedSGD` learns in between.  `topology.py` draws the graph, weighs
it and predicts how fast it agrees and at what cost.
"""

import zlib

import torch

from course.collectives.reduction import in_one_piece
from course.comm.counts import required_count
from course.comm.tensors import describe, required
from course.parallel.flat_parameters import FlatParameters, broadcast_module
from course.parallel.gossip.topology import check_mixing_matrix


def gossip(comm, x, matrix, steps: int):
    """Replace `x` [any shape] by the weighted mean of its neighbours' and its own, `steps` times.

    A rank's neighbours are where its row of `matrix` [ranks, ranks] is not zero; halves are summed
    in float32.  Cost: degree messages of N bytes a step, all under way at once.
    Raises ValueError for weights, steps or a dtype that cannot be; CommMismatch if calls differ.
    Source: Xiao & Boyd 2004; Lian et al. 2017 (D-PSGD without its gradient).
    """
    _check_call(comm, x, matrix, steps)
    row, wide = matrix[comm.rank].tolist(), torch.promote_types(x.dtype, torch.float32)
    mark = f"{zlib.crc32(matrix.detach().cpu().numpy().tobytes()):08x}"
    this_call = comm.collective("gossip", x, steps=steps, weights=mark)
    with this_call, in_one_piece(x, comm.rank) as flat:
        heard = {r: torch.empty_like(flat) for r, w in enumerate(row) if w and r != comm.rank}
        known = sorted({**heard, comm.rank: flat}.items())  # one order of summing for all ranks
        for step in range(steps):
            handles = [comm.irecv(out, src, step) for src, out in heard.items()]
            handles += [comm.isend(flat, dst, step) for dst in heard]
            for handle in handles:
                handle.wait()
            mean = torch.zeros_like(flat, dtype=wide)
            for rank, value in known:
                mean.add_(value.to(wide), alpha=row[rank])
            flat.copy_(mean)


class DecentralisedSGD:
    """`module` on every rank, averaged with its neighbours' at every step of its own.

    x <- the mean of x over neighbours, by the weights `matrix` [ranks, ranks], minus rate g, with
    the gradient g at the old x: so the averaging runs while the gradient is computed.  The mean
    over all ranks moves by the mean gradient.  All start where rank 0 is; the parameters become
    parts of one tensor (see `flat_parameters.py`).  After `backward()` call `step`; at last
    `finish`.  To evaluate, take the ranks' mean (`data.average_weights`).

    Cost: `topology.gossip_cost` of the weights' bytes, for as many steps and one more.
    Raises ValueError, CommMismatch as `gossip` does; PeerLost where a neighbour was lost;
    RuntimeError at a step for a module that was moved, cast or given other parameters.
    Source: Lian et al. 2017 (D-PSGD).
    """

    def __init__(self, module, comm, matrix):
        self.comm, self.matrix, self.weights = comm, matrix, FlatParameters(module)
        _check_call(comm, self.weights.flat, matrix, 1)
        broadcast_module(comm, module)
        self.mixed = self.weights.flat.clone()
        self._begin()

    def step(self, rate: float):
        """Take in the neighbours' weights and step with the module's gradient."""
        self.weights.required_in_place(self.comm.rank)
        self.begun.wait()
        self.weights.add_gradient(self.mixed, -rate)
        self.weights.flat.copy_(self.mixed)
        self._begin()

    def finish(self) -> torch.Tensor:
        """This rank's weights [elements] in the end, when nothing of its own is under way."""
        self.begun.wait()
        return self.weights.flat

    def _begin(self):
        self.begun = self.comm.submit(gossip, self.mixed, self.matrix, 1)


def _check_call(comm, x, matrix, steps):
    """Refuse what `gossip` cannot be called with."""
    if not required(x, "what is averaged", comm.rank).dtype.is_floating_point:
        rule = "gossip averages floating-point numbers"
        raise ValueError(f"rank {comm.rank}: {rule}, not {describe(x.dtype, x.shape)}")
    if len(check_mixing_matrix(matrix)) != comm.size:
        raise ValueError(f"rank {comm.rank}: weights for {len(matrix)} ranks, but {comm.size} mix")
    required_count(steps, "steps", comm.rank, least=0)
