"""What was measured, as Markdown: tables of ratios, and the machine that they are of."""

import datetime
import os
from typing import NamedTuple

from course.classroom import provenance

EQUAL = 0.95  # of 1.0: two measurements of one thing differ by as much
MB, GB = 10**6, 10**9


class Aim(NamedTuple):
    """What a ratio should be; without a bound it is only reported."""

    sign: str = ""
    bound: float = None

    def __str__(self):
        return f"{self.sign} {self.bound}" if self.sign else "none"

    def met(self, ratio: float) -> str:
        if not self.sign:
            return ""
        if self.sign == "≤":
            return "yes" if ratio <= self.bound else "no"
        return "yes" if ratio >= (EQUAL if self.bound == 1.0 else self.bound) else "no"


NO_AIM = Aim()


class Table(NamedTuple):
    """A benchmark's result: `rows` are dicts with the same keys, the columns."""

    title: str
    rows: list
    note: str = ""

    def markdown(self) -> str:
        columns = list(self.rows[0])
        widths = [max(len(str(row[c])) for row in [dict(zip(columns, columns)), *self.rows])
                  for c in columns]  # fmt: skip
        lines = [[c.ljust(w) for c, w in zip(columns, widths)], ["-" * w for w in widths]]
        lines += [[str(row[c]).ljust(w) for c, w in zip(columns, widths)] for row in self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join(part for part in (f"## {self.title}", table, self.note) if part)


def judged(ratio, aim: Aim = NO_AIM) -> dict:
    """The columns that end every row."""
    return {
        "ratio": f"{ratio.median:.2f}",
        "lowest to highest": f"{ratio.low:.2f} to {ratio.high:.2f}",
        "aim": str(aim),
        "met": aim.met(ratio.median),
    }


def heading(turns: int) -> str:
    """What was measured on, and how the ratios are to be read."""
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GB
    return f"""# Ratios measured on {datetime.date.today()}

{provenance.machine()} for this process, {memory_gb:.0f} GB of memory; {provenance.versions()}; \
load before it began: {os.getloadavg()[0]:.1f}.

A ratio is the median over {turns} turns, in each of which all contestants ran one after another. \
Where the aim is ≥ 1.0, {EQUAL} and more counts as equal."""
