"""Draw a layer with weights of its own at every place: a window for each, or one for a block."""

from itertools import product

from matplotlib.patches import ConnectionPatch, Rectangle

from course.classroom.figures import COLOURS, named, panels

SIDE, FIELD, BLOCK = 12, 9, 4  # of the picture, of a window, of a block of places
SHOWN = ((0, 0), (1, 2), (3, 3))  # places whose windows are drawn
GAP = 3.5  # between picture and results


def draw():
    """16 places with a window each, and the same 16 as a block with one window: axes of both."""
    drawn = panels(2, width=5.2, height=4.3)
    apart = [(place, place) for place in SHOWN]
    block = [(place, (0, 0)) for place in SHOWN]  # the first window lies in the corner
    pixels, places = FIELD**2, BLOCK**2
    said = (
        f"{places} places, {places} windows: {places} products\n"
        f"[1, {pixels}] · [{pixels}, batch], each reads pixels anew",
        f"{places} places, one window: one product\n"
        f"[{places}, {pixels}] · [{pixels}, batch], the pixels are read once",
    )
    titles = "Each place looks at a window of its own", "A block of places looks at one window"
    for axes, title, text, pairs in zip(drawn, titles, said, (apart, block), strict=True):
        _scheme(axes, pairs)
        axes.text(0, -SIDE - 0.8, text, va="top", fontsize=9.5)
        axes.set(xlim=(-0.3, SIDE + GAP + BLOCK + 0.3), ylim=(-SIDE - 3.2, 0.9), aspect="equal")
        named(axes, title, "", "").set_axis_off()
    return drawn


def _scheme(axes, pairs):
    """The picture, the results, and for each pair (place, corner of its window) both joined."""
    axes.add_patch(Rectangle((0, -SIDE), SIDE, SIDE, facecolor="#F4F4F4", edgecolor="0.5"))
    axes.text(0, 0.2, f"picture, {SIDE} x {SIDE}", fontsize=9, color="0.35")
    left, top = SIDE + GAP, -(SIDE - BLOCK) / 2
    for i, j in product(range(BLOCK), repeat=2):
        axes.add_patch(Rectangle((left + j, top - i - 1), 1, 1, facecolor="white", ec="0.5"))
    axes.text(left, top + 0.2, "results", fontsize=9, color="0.35")
    for number, ((i, j), (down, right)) in enumerate(pairs):
        colour, dashes = COLOURS[number], ("-", "--", ":")[number]
        looks = {"facecolor": "none", "edgecolor": colour, "lw": 2, "ls": dashes}
        axes.add_patch(Rectangle((right, -down - FIELD), FIELD, FIELD, **looks))
        axes.add_patch(Rectangle((left + j, top - i - 1), 1, 1, facecolor=colour, ec="0.5"))
        ends = (right + FIELD, -down - FIELD / 2), (left + j, top - i - 0.5)
        axes.add_patch(ConnectionPatch(*ends, "data", "data", color=colour, ls=dashes))
