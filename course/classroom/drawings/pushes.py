"""Draw a parameter server and its clients: who pulls which version, and when a gradient comes."""

from typing import NamedTuple

from course.classroom.figures import COLOURS, named, panels

PULL, PUSH = COLOURS[0], COLOURS[1]
SERVER, CLIENT = "#F2F2F2", "#CFE6F5"
THICK, ASIDE = 0.44, 0.03  # of a lane; seconds between two arrows of the same moment


class Turn(NamedTuple):
    """A client has weights from the second `pulled` on, and pushes a `gradient` at `pushed`."""

    client: str
    pulled: float
    pushed: float
    gradient: str


def versions(turns) -> list[int]:
    """Of which version each turn's gradient is: the pushes up to its pull."""
    return [sum(other.pushed <= turn.pulled for other in turns) for turn in turns]


def staleness(turns) -> list[int]:
    """How many pushes of others came between each turn's pull and its push."""
    before = [sum(other.pushed < turn.pushed for other in turns) for turn in turns]
    return [now - then for now, then in zip(before, versions(turns), strict=True)]


def server_timeline(turns, weights, title):
    """The server's lane with a box for each version of `weights`, a lane for each of two clients
    above and below it, dashed arrows for pulls and solid ones for pushes.  Returns the axes.
    """
    axes = panels(1, width=9.6, height=4.4)[0]
    above, below = dict.fromkeys(turn.client for turn in turns)
    lanes = {above: 2, below: 0}
    begins = [0.0, *sorted(turn.pushed for turn in turns)]
    end = begins[-1] + 0.45
    for number, (start, stop) in enumerate(zip(begins, [*begins[1:], end], strict=True)):
        text = f"version {number}\nw = {weights[number]}".replace("-", "−")
        _bar(axes, 1, start, stop, text, SERVER)
    for turn, age, version in zip(turns, staleness(turns), versions(turns), strict=True):
        _turn(axes, lanes[turn.client], turn, version, age)
    axes.set_yticks([2, 1, 0], [f"client {above}", "server", f"client {below}"])
    axes.set(xlim=(-0.04, end), ylim=(-0.45, 2.45))
    axes.plot([], [], "--", color=PULL, label="pull: weights to the client")
    axes.plot([], [], "-", color=PUSH, label="push: a gradient to the server")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return named(axes, title, "time (s)", "")


def _turn(axes, lane, turn, version, age):
    """A client's box, the arrow that brought its weights and that of its gradient."""
    _bar(axes, lane, turn.pulled, turn.pushed, f"slope of version {version}", CLIENT)
    towards = 1 if lane < 1 else -1
    edge, server = lane + towards * THICK / 2, 1 - towards * THICK / 2
    _arrow(axes, turn.pulled + ASIDE, server, edge, PULL, "dashed")
    _arrow(axes, turn.pushed - ASIDE, edge, server, PUSH, "solid")
    said = f"push {turn.gradient}\nstaleness {age}"
    axes.text(turn.pushed - 0.06, (edge + server) / 2, said, color=PUSH, ha="right", va="center",
              fontsize=9)  # fmt: skip


def _bar(axes, y, start, stop, text, colour):
    axes.barh(y, stop - start, THICK, start, color=colour, ec="0.4", lw=0.8)
    axes.text((start + stop) / 2, y, text, ha="center", va="center", fontsize=9)


def _arrow(axes, x, y, towards, colour, dashes):
    looks = {"arrowstyle": "-|>", "color": colour, "lw": 1.8, "linestyle": dashes}
    axes.annotate("", (x, towards), (x, y), arrowprops=looks | {"shrinkA": 0, "shrinkB": 0})
