"""What the other launchers run: join gloo, one all-reduce, leave.

torchrun runs this file as a program, mp.spawn its function `spawned`.
"""

import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def all_reduce_once(**where):
    """One all-reduce of ones [1000] in the group that `where` (or the environment) describes."""
    dist.init_process_group("gloo", **where)
    x = torch.ones(1000)
    dist.all_reduce(x)
    assert x.tolist() == [dist.get_world_size()] * 1000
    dist.destroy_process_group()


def spawned(rank, ranks, threads, meeting_point):
    """`all_reduce_once` on one of `ranks` processes that meet in a file."""
    torch.set_num_threads(threads)
    all_reduce_once(init_method=meeting_point, rank=rank, world_size=ranks)


def spawn(ranks: int, threads: int, meeting_point: str) -> float:
    """Seconds that torch.multiprocessing.spawn takes for it."""
    start = time.perf_counter()
    mp.spawn(spawned, (ranks, threads, meeting_point), nprocs=ranks)
    return time.perf_counter() - start


if __name__ == "__main__":
    all_reduce_once()
