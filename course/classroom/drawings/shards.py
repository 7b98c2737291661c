"""Draw which part of each vector a rank keeps: whole copies everywhere, or a shard on each rank."""

from course.classroom.figures import COLOURS, named, panels

WIDTH, GAP, HEIGHT = 1.0, 0.25, 0.62  # of a vector; between two; of a rank's lane
KEPT, AWAY = COLOURS[4], "white"


def draw(kept, ranks, title, axes=None):
    """A lane for each rank, in it a box for each vector of `kept` {name: sharded}, in as many
    parts as there are ranks: a filled part is on that rank, with the number of its part if the
    vector is sharded.  Returns the axes.
    """
    axes = axes or panels(1, width=8.4, height=0.9 + 0.4 * ranks)[0]
    for column, (name, sharded) in enumerate(kept.items()):
        left = column * (WIDTH + GAP)
        axes.text(left + WIDTH / 2, -0.62, name, ha="center", fontsize=9)
        for rank in range(ranks):
            for part in range(ranks):
                _part(axes, left + part * WIDTH / ranks, rank, part, ranks, sharded)
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set(xlim=(-0.05, len(kept) * (WIDTH + GAP)), ylim=(ranks - 0.5, -1.0), xticks=[])
    axes.spines[:].set_visible(False)
    return named(axes, title, "", "")


def _part(axes, x, rank, part, ranks, sharded):
    here = not sharded or part == rank
    axes.barh(rank, WIDTH / ranks, HEIGHT, x, color=KEPT if here else AWAY, ec="0.5", lw=0.8)
    if sharded and here:
        axes.text(x + WIDTH / ranks / 2, rank, str(part), ha="center", va="center", fontsize=8)
