"""Draw what saving more often or more rarely wastes: the model, and simulated jobs."""

import numpy as np

from course.classroom.drawings import lines
from course.cluster.failover.interval import first_order_waste, optimal, waste

SPAN_S = 480.0, 19_200.0  # 8 minutes to more than 5 hours
TICKS = 10, 20, 50, 100, 200


def draw(save_s, mtbf_s, restart_s, title, *, jobs=None, axes=None):
    """The waste in per cent against the minutes of work between two saves, by Daly's model and to
    first order, the best interval, and `jobs` {interval in s: wastes of simulated jobs}.

    What is above 80 % is outside of the picture.  Returns the axes.
    """
    seconds = np.geomspace(*SPAN_S, 80)
    formulas = {"model": waste, "first order": first_order_waste}
    curves = {name: (seconds / 60, [100 * formula(t, save_s, mtbf_s, restart_s) for t in seconds])
              for name, formula in formulas.items()}  # fmt: skip
    points = [(t / 60, 100 * each) for t, wastes in (jobs or {}).items() for each in sorted(wastes)]
    dots = {"simulated jobs": tuple(zip(*points))} if points else None
    marks = {" best": optimal(save_s, mtbf_s) / 60}
    axes = lines.draw(curves, title, "minutes of work between two saves", "waste (% of the time)",
                      dots=dots, marks=marks, log="x", limits=(0, 80), axes=axes)  # fmt: skip
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.minorticks_off()
    return axes
