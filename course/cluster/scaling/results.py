"""What was measured, with all that one must know of it, as a file."""

import contextlib
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import sys
from typing import NamedTuple

from course.worlds.cores import cores

VERSION = 1
STRONG, WEAK = "strong", "weak"


class Point(NamedTuple):
    """A step of a program on `ranks` ranks: median seconds of measured turns, or simulated ones;
    bytes that all ranks have sent; their floating-point operations, 0 where nobody counted."""

    program: str
    scaling: str
    ranks: int
    source: str
    seconds: float
    sent_bytes: int
    flops: int = 0


class Results(NamedTuple):
    """Points, and where they are from."""

    points: list
    provenance: dict

    def speedups(self, program, scaling, source="measured") -> dict:
        """{ranks: speed-up over one rank}; with weak scaling p ranks have done p times as much.

        Raises ValueError where there is no point of one rank.
        """
        seconds = {p.ranks: p.seconds for p in self.points
                   if (p.program, p.scaling, p.source) == (program, scaling, source)}  # fmt: skip
        if 1 not in seconds:
            raise ValueError(f"no {source} point of one rank for {program}, {scaling} scaling")
        grown = {ranks: ranks if scaling == WEAK else 1 for ranks in seconds}
        return {ranks: grown[ranks] * seconds[1] / seconds[ranks] for ranks in sorted(seconds)}

    def efficiencies(self, program, scaling, source="measured") -> dict:
        """{ranks: speed-up / ranks}."""
        speedups = self.speedups(program, scaling, source)
        return {ranks: speedup / ranks for ranks, speedup in speedups.items()}

    def utilisation(self, program, scaling, peak_flops_per_s) -> dict:
        """{ranks: model FLOP/s utilisation} of measured steps: their operations over those that
        ranks of this peak could have done meanwhile.  Empty where operations were not counted."""
        curve = program, scaling, "measured"
        return {p.ranks: p.flops / (p.seconds * p.ranks * peak_flops_per_s)
                for p in self.points if p[:2] + p[3:4] == curve and p.flops}  # fmt: skip

    def save(self, path):
        """Write a new file, or none.  Raises ValueError if it exists, since results are not
        overwritten, and for points that `load` would refuse."""
        said = {"version": VERSION, "provenance": self.provenance,
                "points": [_checked(point, path)._asdict() for point in self.points]}  # fmt: skip
        text = json.dumps(said, indent=1) + "\n"
        try:
            with open(path, "x") as file:
                file.write(text)
        except FileExistsError:
            raise ValueError(f"{path} exists, and results are not overwritten") from None
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)  # half of them would be in the way of the next ones
            raise


def load(path) -> Results:
    """The Results of a file.  Raises ValueError for what is none, or of another version, and for a
    point that cannot be."""
    try:
        said = json.loads(pathlib.Path(path).read_text())
        points, provenance, version = said["points"], said["provenance"], said["version"]
        points = [Point(**point) for point in points] if version == VERSION else []
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no results file") from None
    if version != VERSION:
        raise ValueError(f"{path} is of version {version!r}, this program reads {VERSION}")
    return Results([_checked(point, path) for point in points], provenance)


def _checked(point, path) -> Point:
    *texts, ranks, source, seconds, sent_bytes, flops = point
    whole = all(isinstance(each, int) and each >= 0 for each in (ranks, sent_bytes, flops))
    named = all(isinstance(text, str) for text in (*texts, source))
    if not (
        whole and ranks and named and isinstance(seconds, int | float) and 0 < seconds < math.inf
    ):
        raise ValueError(f"{path} has a point that cannot be: {point}")
    return point


def provenance(world, resting, turns) -> dict:
    """Where and how something is measured now."""
    return {
        "date": str(datetime.date.today()),
        "command": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
        "world": repr(world),
        "resting": resting,
        "turns": turns,
        "cores": cores(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "course")},
    }
