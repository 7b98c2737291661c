"""Draw plans by what they take: money against days, and the corner that a budget leaves."""

from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from course.classroom.figures import COLOURS, named, panels

MARKERS = "osD^v"


def draw(candidates, budget, title, *, unit, own=None, axes=None):
    """A dot for each of `candidates` (a plan and its estimate), by kind of server, with how many of
    them below the cheapest; grey is what keeps the days and the money of `budget`, and a dot is
    hollow where the power is too much.  A star is `own`, one more of them.  Returns the axes."""
    axes = axes or panels(1, width=7.4, height=4.2)[0]
    corner = {"facecolor": "0.9", "edgecolor": "0.4", "linestyle": (0, (5, 2)), "zorder": 0}
    corner["label"] = "days and money within the budget"
    axes.add_patch(Rectangle((0, 0), budget.days, budget.money, **corner))
    for number, kind in enumerate(dict.fromkeys(c.plan.node.name for c in candidates)):
        mine = [c for c in candidates if c.plan.node.name == kind]
        told = [c.estimate for c in mine]
        for nodes in sorted({c.plan.nodes for c in mine}):
            at = min((c.estimate.money, c.estimate.days) for c in mine if c.plan.nodes == nodes)
            axes.annotate(f"{nodes} x", at[::-1], (0, -17), textcoords="offset points", size=9,
                          ha="center", color=COLOURS[number])  # fmt: skip
        looks = {"marker": MARKERS[number], "color": COLOURS[number], "s": 26}
        fits = [each for each in told if each.watts <= budget.watts]
        over = [each for each in told if each.watts > budget.watts]
        for group, fill in ((fits, {}), (over, {"facecolors": "none"})):
            label = kind if fill == {} else f"{kind}, too much power"
            if group:
                points = [each.days for each in group], [each.money for each in group]
                axes.scatter(*points, label=label, **looks, **fill)
    if own:
        looks = {"marker": "*", "s": 190, "color": "black", "edgecolor": "white", "zorder": 4}
        axes.scatter(own[1].days, own[1].money, label="your own plan", **looks)
    axes.set(xscale="log", yscale="log", ymargin=0.1)
    for axis in (axes.xaxis, axes.yaxis):  # 20,000, and no power of ten
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return named(axes, title, "days", f"money ({unit})")
