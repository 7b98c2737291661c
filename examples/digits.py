"""A training for any launcher: `main(comm)` on each rank, whoever has started it.

run(main, 4, on=slurm(nodes=2))        from a notebook
sbatch examples/srun.sbatch            as a job; torchrun.sbatch and mpirun.sbatch do the same
"""

import socket

import torch
from torch.nn.functional import cross_entropy

from course.learning.training.digits import batches, digit_net, digit_split, judge
from course.parallel.data import DataParallel

STEPS, BATCH, RATE = 200, 128, 0.1


def main(comm):
    """Learn handwritten digits, each rank from its part of every batch; the loss on others."""
    split, model = digit_split(), DataParallel(digit_net(seed=0), comm)
    optimiser = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    for x, y in batches(split.training, BATCH, STEPS, seed=0, rank=comm.rank, ranks=comm.size):
        optimiser.zero_grad()
        cross_entropy(model(x), y).backward()
        optimiser.step()
    loss, error = judge(model.module, split.test)
    if comm.rank == 0:
        print(
            f"{comm.size} ranks on {len(set(comm.nodes))} nodes, rank 0 on {socket.gethostname()}"
        )
        print(f"after {STEPS} steps: loss {loss:.6f}, {error:.2%} wrong", flush=True)
    return loss
