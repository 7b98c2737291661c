"""What torch.compile costs before it gains anything, of the function that notebook 24 compiles."""

import statistics

import torch

from benchmarks.report import Table, judged
from benchmarks.turns import Ratio
from course.cluster.frameworks.compiling import Calls, gelu, timed_calls

TITLE = "The first call of a compiled function, and later ones"
NUMBERS = 1000, 1000


def measure(turns) -> Table:
    """A row: GELU on a million numbers, each turn in a process that finds nothing compiled."""
    try:
        calls = [timed_calls(gelu, torch.randn(NUMBERS)) for _ in range(turns)]
    except RuntimeError as refusal:
        return Table(TITLE, [{"not measured": str(refusal)}])
    each = list(zip(*calls))
    median = Calls(*map(statistics.median, each))
    row = {
        "what": "as it is / compiled",
        "ms": f"{1e3 * median.eager_s:.1f} / {1e3 * median.later_s:.1f}",
        "first call (s)": f"{median.first_s:.1f}",
        "paid after (calls)": f"{median.paid_after:.0f}",
    }
    return Table(TITLE, [row | judged(Ratio.of(each[0], each[2]))])
