"""Measure strong and weak scaling on the world of your choice.

python -m course.cluster.scaling --ranks 1 2 --out here.json --peak 0.1
python -m course.cluster.scaling pipeline --world hosts --resting --ranks 1 2 4 8
"""

import argparse
import os

from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_1G
from course.cluster.scaling.laws import amdahl, gustafson
from course.cluster.scaling.measure import measure, simulate
from course.cluster.scaling.programs import PROGRAMS
from course.cluster.scaling.results import STRONG
from course.cluster.scaling.work import DEVICE
from course.worlds import hosts, mpi, processes

# More ranks than cores are what `--resting` is for.
WORLDS = {
    "processes": lambda p: processes(oversubscribe=True),
    "hosts": lambda p: hosts(p, 1, "1gbit", oversubscribe=True),
    "mpi": lambda p: mpi(),
}
CABLE = ETHERNET_1G._replace(bytes_per_s=hosts(1, 1, "1gbit").bytes_per_s)


def main(arguments=None):
    """Measure, print a line for each curve, and write the file that was asked for."""
    options = _parsed(arguments)
    results = measure(WORLDS[options.world], options.ranks, options.programs, turns=options.turns,
                      resting=options.resting)  # fmt: skip
    if options.resting:
        imagined = simulate(lambda p: one_switch(p, DEVICE, CABLE), options.ranks,
                            options.programs, resting=options.resting)  # fmt: skip
        results = results._replace(points=results.points + imagined)
    print("\n" + efficiency_table(results))
    if options.resting:
        print("\n" + agreement_table(results))
    if peak := DEVICE.flops_per_s if options.resting else 1e12 * options.peak:
        print("\n" + utilisation_table(results, peak))
    if options.out:
        results.save(options.out)
        print(f"written to {options.out}")


def efficiency_table(results) -> str:
    """A line for every curve: efficiencies, and the law that fits it."""
    lines = []
    curves = dict.fromkeys((p.program, p.scaling, p.source) for p in results.points)
    for curve in curves:
        fit, by_rank = _fit(results, *curve), results.efficiencies(*curve).items()
        shares = ", ".join(f"{p}: {share:.0%}" for p, share in by_rank)
        lines.append("{:14} {:7} {:10}".format(*curve) + f" {shares}{fit}")
    return "\n".join(lines)


def utilisation_table(results, peak_flops_per_s) -> str:
    """A line for every measured curve: the model FLOP/s utilisation of ranks of this peak."""
    lines = [f"model FLOP/s utilisation (MFU) of {peak_flops_per_s / 1e12:g} TFLOP/s a rank:"]
    for curve in dict.fromkeys((p.program, p.scaling) for p in results.points):
        by_rank = results.utilisation(*curve, peak_flops_per_s).items()
        lines.append("{:14} {:7} ".format(*curve) + ", ".join(f"{p}: {u:.1%}" for p, u in by_rank))
    return "\n".join(lines)


def agreement_table(results) -> str:
    """A line for every curve that was simulated as well: measured time over simulated time."""
    seconds = {(*p[:3], p.source): p.seconds for p in results.points}
    lines = ["measured time / simulated time:"]
    for curve in dict.fromkeys(p[:2] for p in results.points):
        ratios = {p: seconds[*curve, p, "measured"] / seconds[*curve, p, "simulated"]
                  for p in sorted({p.ranks for p in results.points})}  # fmt: skip
        by_rank = ", ".join(f"{p}: {ratio:.2f}" for p, ratio in ratios.items())
        lines.append("{:14} {:7} ".format(*curve) + by_rank)
    return "\n".join(lines)


def _fit(results, program, scaling, source) -> str:
    speedups = results.speedups(program, scaling, source)
    if max(speedups) == 1:
        return ""
    law = (amdahl if scaling == STRONG else gustafson)(speedups)
    return f"   {law.name}: {law.serial:.1%} serial"


def _parsed(arguments):
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m course.cluster.scaling", description=__doc__,
                                     formatter_class=plain)  # fmt: skip
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--world", choices=WORLDS, default="processes")
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2], metavar="P")
    parser.add_argument("--turns", type=int, default=5, help="how often each step is timed (5)")
    parser.add_argument("--resting", nargs="?", type=float, const=1.0, default=0.0, metavar="TIMES",
                        help="0.2 to 0.5 s of rest for a step of one rank, TIMES (1)")  # fmt: skip
    parser.add_argument("--peak", type=float, default=0.0, metavar="TFLOPS",
                        help="of a rank's device: also print the share that is used")  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="write the results file there")
    options = parser.parse_args(arguments)
    options.programs = options.programs or list(PROGRAMS)
    for refusal in _refusals(options):
        parser.error(refusal)
    return options


def _refusals(options):
    """Why there can be no such measurement, or no file of it."""
    for name in options.programs:
        if name not in PROGRAMS:
            yield f"there is no program {name!r} among {', '.join(PROGRAMS)}"
    if 1 not in options.ranks or min(options.ranks) < 1:
        yield "a curve begins with 1 rank: --ranks 1 2 ..."
    if not options.peak >= 0:
        yield f"a peak is above 0 TFLOP/s, not {options.peak:g}"
    if not 0 <= options.resting < float("inf"):
        yield f"ranks rest 0 times as long or more, not {options.resting:g}"
    if options.turns < 1:
        yield f"a step is timed at least once, not {options.turns} times"
    if options.out and os.path.exists(options.out):
        yield f"{options.out} exists, and results are not overwritten"
    if options.out and not os.path.isdir(folder := os.path.dirname(options.out) or "."):
        yield f"there is no folder {folder} for the results"


if __name__ == "__main__":
    main()
