"""Two checkouts of this project against each other: `python -m benchmarks.between OTHER`.

Both take turns, each in a process of its own that measures all jobs, so a busy minute strikes both.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import torch

from benchmarks.report import Table, heading, judged
from benchmarks.turns import Ratio, race, seconds
from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, FREE
from course.collectives import all_reduce
from course.worlds import hosts, run, simulated

HERE = pathlib.Path(__file__).parents[1]
OFTEN = 5
GIGABIT = hosts(4, 1, "1gbit")
NOTE = """ratio = the other checkout's seconds / this one's: above 1 this one is faster. Of each \
job the median of several runs in one process; the first run of a process is not counted."""


def reduce_often(comm, elements, algorithm, times):
    x = torch.ones(elements, device=comm.device)
    for _ in range(times):
        all_reduce(comm, x, algorithm=algorithm)


def reduced(algorithm, elements, on=None):
    """Seconds of an all-reduce of 4 ranks, the slowest from the first's begin."""

    def make(comm):
        x = torch.ones(elements)
        return {"call": lambda: all_reduce(comm, x, algorithm=algorithm)}

    return statistics.median(race(make, 4, OFTEN, on=on)["call"])


def often(job) -> float:
    """Median seconds of a call, the first not counted."""
    return statistics.median([seconds(job) for _ in range(OFTEN + 1)][1:])


JOBS = {
    "a run of 4 ranks": lambda: often(lambda: run(reduce_often, 4, 1000, "ring", 1)),
    "100 all-reduces of 4 KB, checked": lambda: often(
        lambda: run(reduce_often, 4, 1000, "recursive_doubling", 100)
    ),
    "ring, 16 MB, one machine": lambda: reduced("ring", 4 << 20),
    "hierarchical, 16 MB, one machine": lambda: reduced("hierarchical", 4 << 20),
    "recursive doubling, 4 KB, one machine": lambda: reduced("recursive_doubling", 1 << 10),
    "ring, 4 MB, 1 Gb/s": lambda: reduced("ring", 1 << 20, GIGABIT),
    "imagined ring of 64 ranks": lambda: often(
        lambda: run(reduce_often, 64, 64_000, "ring", 1, checked=False,
                    on=simulated(one_switch(64, FREE, EDR), device="meta"))
    ),
}  # fmt: skip


def measured(checkout: pathlib.Path) -> dict:
    """{job: seconds} in a process that has this file's jobs and the checkout's package."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run([sys.executable, "-P", __file__, checkout, "--alone"], env=environment,
                          text=True, check=True, stdout=subprocess.PIPE)  # fmt: skip
    return json.loads(done.stdout)


def compare(other: pathlib.Path, turns: int) -> Table:
    """A row for each job, from `turns` turns of both checkouts."""
    pairs = [(measured(other), measured(HERE)) for _ in range(turns)]
    rows = [
        {"job": job, "this, ms": f"{1e3 * statistics.median(new[job] for _, new in pairs):.1f}"}
        | judged(Ratio.of([old[job] for old, _ in pairs], [new[job] for _, new in pairs]))
        for job in JOBS
    ]
    return Table(f"This checkout against {other.name}", rows, NOTE)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.between", description=__doc__)
    parser.add_argument("other", type=pathlib.Path, help="the folder of the other checkout")
    parser.add_argument("--turns", type=int, default=OFTEN)
    parser.add_argument("--alone", action="store_true", help="print the seconds of its package")
    options = parser.parse_args(arguments)
    if options.alone:
        print(json.dumps({name: job() for name, job in JOBS.items()}))
        return
    print(heading(options.turns), compare(options.other, options.turns).markdown(), sep="\n\n")


if __name__ == "__main__":
    main()
