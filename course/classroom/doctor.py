"""Is this machine ready for the book?

`doctor()` in a cell, or `python -m course.classroom.doctor` in a terminal.  The report says what
was found and, where something is missing, what to do about it.
"""

import sys

from course.classroom import machine, software
from course.classroom.machine import Finding

PROBES = {
    "system": software.system,
    "Python": software.python,
    "packages": software.packages,
    "cores": machine.cores,
    "memory": machine.memory,
    "GPUs": software.gpus,
    "backend": software.backend,
    "shared memory": machine.shared_memory,
    "loopback": machine.loopback,
    "cache": machine.cache,
    "progress": machine.ledger,
    "data": machine.data,
    "ranks": machine.two_ranks,
    "hosts": machine.hosts,
    "Slurm": machine.slurm,
}


class Report(list):
    """Findings, shown as a table."""

    @property
    def ready(self) -> bool:
        return not any(finding.obstacle for finding in self)

    def __repr__(self):
        lines = []
        for finding in self:
            lines.append(f"{finding.mark:4}  {finding.what:13}  {finding.state}")
            lines += [f"{'':6}{'':13}  -> {finding.advice}"] if finding.advice else []
        count = sum(finding.obstacle for finding in self)
        lines.append("This machine is ready." if self.ready else f"Not ready: {count} to fix.")
        return "\n".join(lines)


def doctor() -> Report:
    """Look at everything that the book needs from this machine; takes some seconds."""
    return Report(examined(name, probe) for name, probe in PROBES.items())


def examined(name: str, probe) -> Finding:
    """What a probe finds; a probe that fails has found an obstacle."""
    try:
        return probe()
    except Exception as trouble:
        reason = f"{type(trouble).__name__}: {trouble}".splitlines()[0]
        return Finding(name, "could not be looked at", reason, True)


if __name__ == "__main__":
    report = doctor()
    print(report)
    sys.exit(not report.ready)
