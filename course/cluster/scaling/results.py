"""What was measured, with all that one must know of it, as a file."""

import datetime
import importlib.metadata
import json
import pathlib
import platform
import sys
from typing import NamedTuple

from course.worlds.cores import cores

VERSION = 1
STRONG, WEAK = "strong", "weak"


class Point(NamedTuple):
    """A step of a program on `ranks` ranks: median seconds of measured turns, or simulated ones;
    bytes that all ranks have sent."""

    program: str
    scaling: str
    ranks: int
    source: str
    seconds: float
    sent_bytes: int


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

    def save(self, path):
        """Write a new file.  Raises ValueError if it exists: results are not overwritten."""
        said = {"version": VERSION, "provenance": self.provenance,
                "points": [point._asdict() for point in self.points]}  # fmt: skip
        try:
            with open(path, "x") as file:
                json.dump(said, file, indent=1)
                file.write("\n")
        except FileExistsError:
            raise ValueError(f"{path} exists, and results are not overwritten") from None


def load(path) -> Results:
    """The Results of a file.  Raises ValueError for what is none, or of another version."""
    try:
        said = json.loads(pathlib.Path(path).read_text())
        if said["version"] == VERSION:
            return Results([Point(**point) for point in said["points"]], said["provenance"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no results file") from None
    raise ValueError(f"{path} is of version {said['version']!r}, this program reads {VERSION}")


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
