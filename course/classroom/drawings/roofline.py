"""Draw a roofline: how fast a calculation can be, by how many operations it does with each byte."""

from course.classroom.drawings.lines import DASHES
from course.classroom.figures import COLOURS, named, panels

INTENSITIES = (0.25, 16_384)  # operations per byte
HIGHEST, LOWER = 0.3, 0.55  # decades below the roof at which slopes have their names


def draw(flops_per_s, slopes, title, *, axes=None):
    """A flat roof, and a slope for each of `slopes` {whence the bytes come: bytes a second}.

    The name of the first slope stands on its left, others on the right of theirs; above the end of
    each, the operations per byte.  Returns the axes.
    """
    axes = axes or panels(1, width=7.6, height=4.2)[0]
    axes.set(xscale="log", yscale="log", xlim=INTENSITIES)
    roof, ridges = flops_per_s / 1e9, {name: flops_per_s / each for name, each in slopes.items()}
    axes.plot([min(ridges.values()), INTENSITIES[1]], [roof, roof], color="black", lw=1.6)
    axes.annotate("the processor", (INTENSITIES[1], roof), (-4, 5), ha="right", fontsize=9,
                  textcoords="offset points")  # fmt: skip
    for place, ridge in enumerate(ridges.values()):
        looks = {"color": COLOURS[place], "ls": DASHES[place % len(DASHES)]}
        axes.plot([INTENSITIES[0], ridge], [INTENSITIES[0] / ridge * roof, roof], **looks)
        axes.annotate(f"{float(f'{ridge:.2g}'):,g}", (ridge, roof), (0, 5), ha="center", fontsize=9,
                      textcoords="offset points", color=looks["color"])  # fmt: skip
    axes.set_ylim(INTENSITIES[0] / max(ridges.values()) * roof, roof * 2.5)
    for place, (name, ridge) in enumerate(sorted(ridges.items(), key=lambda item: item[1])):
        down = 10 ** -(HIGHEST + place * LOWER)
        side = {"ha": "right", "xytext": (-6, 0)} if place == 0 else {"xytext": (6, -6)}
        axes.annotate(name, (ridge * down, roof * down), textcoords="offset points", fontsize=9,
                      color=COLOURS[list(ridges).index(name)], **side)  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    return named(axes, title, "operations per byte", "GFLOP/s")
