"""Draw a cluster: its machines, what is in each, and the way of one message."""

from matplotlib.patches import FancyBboxPatch

from course.classroom.figures import COLOURS, named, panels

MACHINE, GAP, HEIGHT = 4.0, 0.7, 3.0  # widths and height of the boxes of machines
RANK = (1.45, 1.15)
LIGHT, PROCESS, SENT = "#F2F2F2", "#CFE6F5", COLOURS[1]


def cluster(title, *, machines=2, ranks_each=2, message=(1, 2)):
    """`machines` side by side, `ranks_each` processes on each, and how `message` (from, to) goes.

    Returns the axes.
    """
    axes = panels(1, width=9.6, height=4.6)[0]
    lefts = [number * (MACHINE + GAP) for number in range(machines)]
    for number, left in enumerate(lefts):
        _machine(axes, left, f"machine {number} (a node)", ranks_each, number * ranks_each)
    middle = (lefts[-1] + MACHINE) / 2
    _box(axes, middle - 0.9, -1.5, 1.8, 0.5, "switch", "white")
    for left in lefts:
        axes.plot([left + MACHINE / 2, middle], [-0.32, -1.0], color="0.5", lw=2, zorder=0)
    axes.text(middle + 1.0, -1.25, "network: cables and switches", va="center", fontsize=9)
    _message(axes, [_way_out(rank, ranks_each) for rank in message], middle)
    named(axes, title, "", "").set_axis_off()
    axes.set(xlim=(-0.1, lefts[-1] + MACHINE + 0.1), ylim=(-1.6, HEIGHT + 0.45), aspect="equal")
    return axes


def _machine(axes, left, name, ranks, first):
    """One machine: processes on cores, each with its own part of the memory; GPU and adapter."""
    _box(axes, left, 0, MACHINE, HEIGHT, "", LIGHT)
    axes.text(left + 0.05, HEIGHT + 0.12, name, fontsize=10, weight="bold")
    for number in range(ranks):
        x = _column(left, number)
        _box(axes, x, 2.25, RANK[0], 0.5, f"core {number}", "white")
        _box(axes, x, 0.9, *RANK, f"rank {first + number}\na process with\nits own memory", PROCESS)
    _box(axes, left + 3.24, 0.9, 0.7, 1.85, "GPU\nwith\nits own\nmemory", "white", "--")
    _box(axes, left + MACHINE / 2 - 0.9, -0.32, 1.8, 0.5, "network adapter", "white")


def _column(left, number):
    return left + 0.12 + number * (RANK[0] + 0.12)


def _way_out(rank, ranks_each):
    """Where a rank's box begins at its lower edge, and the middle of its machine."""
    machine, number = divmod(rank, ranks_each)
    left = machine * (MACHINE + GAP)
    return _column(left, number) + RANK[0] / 2, left + MACHINE / 2


def _message(axes, ends, middle):
    """A line from rank to adapter, switch, adapter and rank, with an arrow at its end."""
    (source, one), (target, other) = ends
    ways = [(source, 0.9), (one, 0.18)], [(one, -0.32), (middle, -1.0), (other, -0.32)]
    for way in ways:
        axes.plot(*zip(*way, strict=True), color=SENT, lw=2.5, zorder=3)
    axes.annotate("", (target, 0.9), (other, 0.18), zorder=3,
                  arrowprops={"arrowstyle": "-|>", "color": SENT, "lw": 2.5})  # fmt: skip
    axes.text(middle, -0.55, "a message", color=SENT, ha="center", fontsize=10, weight="bold")


def _box(axes, x, y, width, height, text, face, edge="-"):
    looks = {"boxstyle": "round,pad=0,rounding_size=0.06", "facecolor": face, "edgecolor": "0.4"}
    axes.add_patch(FancyBboxPatch((x, y), width, height, linestyle=edge, **looks))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5)
