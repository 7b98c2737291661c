"""Draw what each assumption does to an answer: a bar from its low to its high end, the widest on
top.  Such a chart is called a tornado."""

from course.classroom.figures import COLOURS, named, panels


def draw(bars, base, title, x, *, marks=None, chosen=None, known=(), axes=None):
    """`bars` with `assumption`, `low` and `high`, drawn in their order from the top; `base` is the
    answer as assumed, `marks` {name: x} are upright lines; bars beside a `chosen` one are pale,
    those of what is `known`, and only tried otherwise, hatched.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4, height=1.6 + 0.42 * len(bars))[0]
    over = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    for place, bar in enumerate(bars):
        colour = COLOURS[4] if chosen in (None, bar) else "0.9"
        axes.barh(place, bar.high - bar.low, 0.55, bar.low, color=colour, edgecolor="0.2",
                  hatch="//" if bar in known else None)  # fmt: skip
        for at, shift, side in ((bar.low, -4, "right"), (bar.high, 4, "left")):
            axes.annotate(f"{at:.3g}", (at, place), (shift, 0), textcoords="offset points",
                          ha=side, va="center", fontsize=9, bbox=over)  # fmt: skip
    dashes = "-", (0, (5, 2)), (0, (1, 2))
    named_lines = {f"as assumed: {base:.3g}": base} | (marks or {})
    for number, (name, at) in enumerate(named_lines.items()):
        axes.axvline(at, c="0.3", lw=1.2, ls=dashes[number % len(dashes)], label=name, zorder=0)
    axes.set_yticks(range(len(bars)), [bar.assumption for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.use_sticky_edges = False  # room for the numbers
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    named(axes, title, x, "")
    axes.legend(frameon=False, fontsize=9, loc="upper center", ncols=len(named_lines),
                bbox_to_anchor=(0.5, -1.3 / len(bars)))  # fmt: skip
    return axes
