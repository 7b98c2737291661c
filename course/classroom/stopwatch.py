"""How long a piece of work takes, in a way that other programs on the machine hardly disturb."""

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
