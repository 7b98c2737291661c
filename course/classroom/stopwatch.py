"""How long a piece of work takes: `cpu_seconds` of computing, which other programs on the machine
hardly disturb, and `seconds_from_barrier` by the clock, on ranks that begin together.
"""

import time


def cpu_seconds(work, repeat=3) -> float:
    """Seconds for which this process computes during `work()`, the least of `repeat` times.

    Waiting is not counted; where several threads compute, the seconds of all of them are.
    """
    took = []
    for _ in range(repeat):
        begin = time.process_time()
        work()
        took.append(time.process_time() - begin)
    return min(took)


def seconds_from_barrier(comm, program, *args) -> float:
    """Seconds that `program(comm, *args)` takes on this rank, from when all ranks have come."""
    comm.barrier()
    start = comm.clock()
    program(comm, *args)
    return comm.clock() - start
