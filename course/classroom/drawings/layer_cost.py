"""What a training step of a layer that is cut costs, against its size: where arithmetic and network
cross, the reader's layer as dots on the lines, and the largest layers that fit the memory."""

from course.classroom.drawings import lines
from course.classroom.figures import panels

SIZES = tuple(round(500 * 100 ** (k / 24)) for k in range(25))  # 500 to 50,000 neurons
ARITHMETIC, NEURONS, IMAGES = "arithmetic", "neurons cut", "images cut"
WEIGHT_BYTES, NUMBER_BYTES = 16, 4  # weight, gradient, Adam's two averages; anything that is sent


def seconds_of(n, batch, ranks, device, cable) -> dict:
    """Of a training step of a layer of n inputs and n neurons: arithmetic, and the network of
    either cut, two cables a message, latencies included."""
    latency = 4 * (ranks - 1) * cable.latency_s
    passed = 2 * NUMBER_BYTES * n * (ranks - 1) / ranks / cable.bytes_per_s
    return {
        ARITHMETIC: 6 * batch * n**2 / ranks / device.flops_per_s,
        NEURONS: latency + batch * passed,
        IMAGES: latency + n * passed,
    }


def fits(ranks, device, **others) -> dict:
    """For either cut, the largest layer whose weights fit into the memory of `ranks` devices."""
    weights = {NEURONS: device.memory_bytes * ranks, IMAGES: device.memory_bytes}
    return {cut: (nbytes / WEIGHT_BYTES) ** 0.5 for cut, nbytes in weights.items()}


def draw(seconds, neurons, fits, axes=None):
    """Lines of `seconds(n)` {"arithmetic": s, cut: s of its network} and dots at `neurons`;
    `fits` {name of a cut: the largest n whose weights fit}, upright where in the picture.

    The title says what holds for the reader's layer.  Returns the axes.
    """
    took = seconds(neurons)
    curves = {_label(name): (SIZES, [seconds(n)[name] for n in SIZES]) for name in took}
    dots = {_label(name): ([neurons], [took[name]]) for name in took}
    marks = {f"{name}: memory full": n for name, n in fits.items() if SIZES[0] < n < SIZES[-1]}
    axes = axes or panels(1, width=6.3, height=4.0)[0]
    axes.set(xscale="log", xlim=(SIZES[0], SIZES[-1]))
    title, words = verdict(took, neurons, fits), ("neurons of the layer", "time of a step (s)")
    axes = lines.draw(curves, title, *words, dots=dots, log="xy", axes=axes)
    low, high = axes.get_ylim()
    for number, (name, n) in enumerate(marks.items()):
        axes.axvline(n, color="0.4", linestyle=(0, (1, 2)), linewidth=1.3)
        axes.annotate(name, (n, (0.02, 0.09)[number % 2]), (-4, 0), ha="right", fontsize=9,
                      color="0.3", xycoords=("data", "axes fraction"),
                      textcoords="offset points")  # fmt: skip
    axes.set_ylim(low, high)
    return axes


def verdict(took, neurons, fits) -> str:
    """For each cut, how long the network takes beside the arithmetic, and whether it fits."""
    said = []
    for name, largest in fits.items():
        ratio = took[name] / took[ARITHMETIC]
        times = f"network {f'{ratio:,.0f}' if ratio > 10 else f'{ratio:.2g}'} x arithmetic"
        said.append(f"{name}, {times if neurons <= largest else 'memory too small'}")
    return f"{neurons:,} neurons: " + "; ".join(said)


def _label(name):
    return name if name == ARITHMETIC else f"network, {name}"
