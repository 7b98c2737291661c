"""Draw what the memory of a rank holds: a bar for each case, its parts told apart by hatches, each
with its name on it where there is room, and in the list below."""

from course.classroom.figures import COLOURS, named, panels

HATCHES = ("", "////", "....", "xx", "oo")
FILLS = [COLOURS[number] for number in (4, 5, 3, 2, 1)]
NARROW = 0.11  # of the longest bar: a part that is narrower has no name on it


def draw(rows, title, x, *, marks=None, axes=None):
    """A bar for each of `rows` {label: {part: size}}, its parts in one order from the left, the
    total at its end; a part that no bar has is not in the list.  `marks` {name: size} are upright
    dotted lines, all but the last named on their left.  Returns the axes."""
    axes = axes or panels(1, width=8.4, height=1.7 + 0.5 * len(rows))[0]
    longest = max(sum(parts.values()) for parts in rows.values())
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    over = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    seen = {name for parts in rows.values() for name in parts if parts[name] > 1e-9 * longest}
    for row, parts in enumerate(rows.values()):
        left = 0.0
        for name, size in parts.items():
            number = names.index(name)
            axes.barh(row, size, 0.66, left, label=name if row == 0 and name in seen else "",
                      ec="0.2", lw=0.8, color=FILLS[number], hatch=HATCHES[number])  # fmt: skip
            if size > NARROW * longest:
                axes.text(left + size / 2, row, name, ha="center", va="center", size=9, bbox=over)
            left += size
        total = f"{left:,.0f}" if left >= 100 else f"{left:.3g}"
        axes.annotate(total, (left, row), (4, 0), textcoords="offset points", va="center",
                      fontsize=10, bbox=over | {"pad": 3})  # no mark close by  # fmt: skip
    for name, at in (marks or {}).items():
        side, offset = ("left", 4) if at == max(marks.values()) else ("right", -4)
        axes.axvline(at, color="0.3", linestyle=(0, (1, 2)), linewidth=1.5)
        axes.annotate(name, (at, 1), (offset, -11), xycoords=("data", "axes fraction"), fontsize=9,
                      textcoords="offset points", color="0.3", ha=side)  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(xlim=(0, 1.12 * max([longest, *(marks or {}).values()])), ylim=(len(rows) - 0.5, -0.9))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper center", ncols=len(seen),
                bbox_to_anchor=(0.5, min(-0.22, -0.8 / len(rows))))  # fmt: skip
    return named(axes, title, x, "")
