"""Draw what many ranks are worth: where each number comes from is seen by its marker."""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

# marker, filled or not, of what was measured here, recorded elsewhere, simulated or published
SOURCES = {"measured": ("o", "full"), "recorded": ("D", "full"), "simulated": ("s", "none"),
           "published": ("*", "full")}  # fmt: skip
DASHES = ("--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))


def draw(points, title, *, curves=None, ranks=(1,), y="speed-up", axes=None):
    """`points` {name: {ranks: speed-up}}, a name begins with «measured», «recorded»,
    «simulated» or «published»; `curves` {name: function of ranks} are dashed, the ideal is grey.

    Both axes are logarithmic with the same steps; that of ranks has a tick at each point's, and at
    those of `ranks`.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4, height=4.6)[0]
    ticks = sorted({*ranks, *(p for values in points.values() for p in values)})
    many = np.geomspace(1, ticks[-1], 50)
    axes.plot(many, many, c="0.6", lw=1.2, label="ideal")
    for number, (name, curve) in enumerate((curves or {}).items()):
        axes.plot(many, [curve(p) for p in many], label=name, c="0.3", lw=1.2,
                  ls=DASHES[number % len(DASHES)])  # fmt: skip
    for number, (name, values) in enumerate(points.items()):
        marker, filled = SOURCES[name.split()[0].rstrip(",")]
        axes.plot(list(values), list(values.values()), label=name, c=COLOURS[number % len(COLOURS)],
                  marker=marker, fillstyle=filled, ms=11 if marker == "*" else 7,
                  ls="-" if len(values) > 1 else "", lw=0.7)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in axes.xaxis, axes.yaxis:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(ticks)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    named(axes, title, "ranks", y)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes
