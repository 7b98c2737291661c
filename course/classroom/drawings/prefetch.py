"""Draw a training step on shards: what a rank computes, when weights come, when gradients are
summed; layers have the numbers that they have in their nn.Sequential."""

import functools

from course.classroom.timeline import Piece, lanes

FORWARD, BACKWARD, GATHERS, SUMS = "forward", "backward", "gathers weights", "sums gradients"
CALLS = {"gather": GATHERS, "all_gather": GATHERS, "reduce_scatter": SUMS}
MS = 1e3


def watch(layers, clock) -> list[Piece]:
    """The list that from now on gets a Piece, in seconds of `clock()`, for every forward and every
    backward of each of `layers`; they are wrapped by Sharded already, so that waits for weights
    do not count."""
    pieces, begun = [], {}

    def begin(number, *_):
        begun[number] = clock()

    def end(what, number, *_):
        pieces.append(Piece(what, begun[number], clock(), str(number)))

    def after(number, module, args, out):
        end(FORWARD, number)
        out.register_hook(functools.partial(begin, number))

    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(functools.partial(begin, number))
        layer.register_forward_hook(functools.partial(after, number))
        layer.weight.register_hook(functools.partial(end, BACKWARD, number))
    return pieces


def calls(trace, start, end, rank=0) -> list[Piece]:
    """The gathers and sums that `rank` began between the seconds `start` and `end`."""
    return [Piece(CALLS[e.operation], e.start, e.end, _unit(e.call)) for e in trace.events
            if e.rank == rank and e.peer < 0 and e.background and e.operation in CALLS
            and start <= e.start < end]  # fmt: skip


def draw(steps, trace, title, how, axes=None):
    """Three lanes for each of `steps` {label: (pieces, start, end)} of rank 0; the axes."""
    rows = {}
    for label, (pieces, start, end) in steps.items():
        begun = calls(trace, start, end)
        rows[f"{label}: computes"] = _in_ms(pieces, start)
        for what in (GATHERS, SUMS):
            rows[f"{label}: {what}"] = _in_ms([each for each in begun if each.what == what], start)
    return lanes(rows, title, f"time since the step began (ms), {how}", axes)


def _in_ms(pieces, start):
    return [each._replace(start=MS * (each.start - start), end=MS * (each.end - start))
            for each in pieces]  # fmt: skip


def _unit(call):
    """The unit that a gather's name in a trace says."""
    return call.rpartition("(unit ")[2].rstrip(")") if "(unit " in call else ""
