"""Measure, and print tables of ratios: `python -m benchmarks [NAME ...] [--markdown FILE]`."""

import argparse
import pathlib
import sys

from benchmarks import (
    all_reduce,
    checking,
    checkpoints,
    compiling,
    data_parallel,
    ethernet,
    gpu,
    launching,
    local_linear,
    pipeline,
    prediction,
    ring_attention,
    selectivity,
    sharded,
    simulator,
    slurm,
    sparse_coding,
    spatial,
    storage,
    tensor_parallel,
)
from benchmarks.report import heading

MODULES = (launching, all_reduce, checking, ethernet, simulator, prediction, data_parallel,
           pipeline, tensor_parallel, sharded, spatial, ring_attention, sparse_coding, local_linear,
           selectivity, storage, checkpoints, compiling, gpu, slurm)  # fmt: skip
BENCHMARKS = {module.__name__.rpartition(".")[2]: module for module in MODULES}


def main(arguments=None):
    options = parsed(arguments)
    parts = [heading(options.turns)]
    print(parts[0])
    for name in options.names or BENCHMARKS:
        print(f"measuring {name} ...", file=sys.stderr)
        parts.append(BENCHMARKS[name].measure(options.turns).markdown())
        print(f"\n{parts[-1]}", flush=True)
    if options.markdown:
        options.markdown.write_text("\n\n".join(parts) + "\n")


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--turns", type=int, default=9, help="how often each takes its turn (9)")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write it there too")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r} among {', '.join(BENCHMARKS)}")
    if options.turns < 1:
        parser.error(f"each takes its turn at least once, not {options.turns} times")
    if options.markdown and not options.markdown.parent.is_dir():
        parser.error(f"no folder {options.markdown.parent} to write {options.markdown.name} in")
    return options


if __name__ == "__main__":
    main()
