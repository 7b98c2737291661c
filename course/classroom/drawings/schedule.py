"""Draw who does what when in a pipeline: a lane for each rank, a bar for each of its steps."""

from statistics import median

from matplotlib.patches import Patch

from course.classroom.figures import COLOURS, named, panels
from course.parallel.pipeline.step import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

KINDS = {
    FORWARD: ("F: forward", COLOURS[0], ""),
    BACKWARD: ("B: backward", COLOURS[1], "//"),
    INPUT_GRADIENT: ("I: gradient of its input", COLOURS[2], "\\\\"),
    WEIGHT_GRADIENT: ("W: gradient of its weights", COLOURS[3], "xx"),
}
IDLE, PALER = "0.9", 0.6  # a grey; how much of a colour each later stage of a rank keeps
WIDTH, LANE, LETTER = 10.4, 0.46, 0.08  # inches: of the figure, of a lane, of a letter
BARS = 0.72  # the share of the figure's width that is for bars


def draw(timing, title, *, unit_s=1.0, axes=None):
    """Every step of a Timing as a bar with its kind and its micro-batch, in units of `unit_s` from
    the first step's start; with the stage before them where a rank has several.

    Where the bars of a kind are too narrow they have the micro-batch alone, or nothing; kinds have
    their hatches, a rank's later stages are paler, and grey is idle time.  Returns the axes.
    """
    axes = axes or panels(1, width=WIDTH, height=1.3 + LANE * len(timing.rows))[0]
    end = timing.seconds / unit_s
    letter = LETTER / (BARS * axes.figure.get_figwidth()) * end
    begin = min(row[0].start for row in timing.rows if row)
    styles = _styles(timing.rows, letter * unit_s)
    for rank, row in enumerate(timing.rows):
        axes.barh(rank, end, 0.78, color=IDLE, zorder=0)
        stages = sorted({span.step.stage for span in row})
        for step, *times in row:
            start, stop = ((time - begin) / unit_s for time in times)
            _bar(axes, rank, step.kind, start, stop, alpha=PALER ** stages.index(step.stage))
            texts = _texts(step)[styles[step.kind] :]
            _write(axes, rank, (start + stop) / 2, _fitting(texts, (stop - start) / letter))
    axes.set(xlim=(0, end * 1.005), yticks=range(len(timing.rows)))
    axes.set_yticklabels([f"rank {rank}" for rank in range(len(timing.rows))])
    named(axes, title, "time (units: 1 = one forward pass of a stage)", "").invert_yaxis()
    return _with_keys(axes, {span.step.kind for row in timing.rows for span in row})


def refusal(sentence):
    """The axes of an empty picture that says why there is none."""
    axes = named(panels(1, width=WIDTH, height=0.8)[0], sentence, "", "")
    axes.set_axis_off()
    return axes


def _bar(axes, rank, kind, start, stop, alpha):
    _, colour, hatch = KINDS[kind]
    looks = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.7}
    axes.barh(rank, stop - start, 0.78, start, alpha=alpha, **looks)


def _styles(rows, letter) -> dict:
    """For each kind, which of its `_texts` its bars begin with: the first for which a bar of median
    width has room, be the numbers long or short, or else the number.  With the stage only where
    some rank has several; `letter` is in seconds."""
    spans = [span for row in rows for span in row]
    least = 0 if any(len({span.step.stage for span in row}) > 1 for row in rows) else 1
    styles = {}
    for kind in {span.step.kind for span in spans}:
        alike = [span for span in spans if span.step.kind == kind]
        letters = median(span.end - span.start for span in alike) / letter
        longest = [max(map(len, each)) for each in zip(*(_texts(span.step) for span in alike))]
        styles[kind] = next((style for style in range(least, 3) if longest[style] < letters), 2)
    return styles


def _texts(step) -> tuple:
    """What a bar may have written on it, the longest first."""
    return str(step), f"{step.kind}{step.micro_batch}", str(step.micro_batch), ""


def _fitting(texts, letters) -> str:
    """The first for which there is room on a bar that is so many letters wide."""
    return next(text for text in texts if len(text) < letters or not text)


def _write(axes, rank, middle, text):
    under = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
    if text:
        axes.text(middle, rank, text, ha="center", va="center", fontsize=8, bbox=under)


def _with_keys(axes, kinds):
    keys = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
            for kind, (name, colour, hatch) in KINDS.items() if kind in kinds]  # fmt: skip
    if any((bar.get_alpha() or 1) < 1 for bar in axes.patches):
        keys.append(Patch(facecolor=COLOURS[0], alpha=PALER, label="pale: a rank's later stages"))
    keys.append(Patch(facecolor=IDLE, label="idle"))
    axes.legend(handles=keys, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes
