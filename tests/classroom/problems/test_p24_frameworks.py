"""Traces, placements, frameworks and compiled functions: answers that were really likely."""

import itertools
import statistics

from course.classroom.problems.p24_frameworks import (
    CASES,
    compiled_gain,
    compiled_gain_with_the_bug,
    exposed_us,
    improved,
)
from tests.classroom.gallery import Gallery, gallery_tests

# Messages that nothing hides


def exposed_stub(events):
    """Microseconds in which a message is under way and no arithmetic."""
    ...


def of(events, beginning):
    return [e for e in events if e["ph"] == "X" and e["name"].startswith(beginning)]


def by_microsecond(events):
    busy = {kind: set() for kind in ("aten::", "gloo:")}
    for kind, moments in busy.items():
        for e in of(events, kind):
            moments.update(range(e["ts"], e["ts"] + e["dur"]))
    return len(busy["gloo:"] - busy["aten::"])


def all_messages(events):
    return sum(e["dur"] for e in of(events, "gloo:"))


def messages_once(events):
    moments = {t for e in of(events, "gloo:") for t in range(e["ts"], e["ts"] + e["dur"])}
    return len(moments)


def the_hidden_part(events):
    return messages_once(events) - exposed_us(events)


def one_minus_the_other(events):
    return all_messages(events) - sum(e["dur"] for e in of(events, "aten::"))


def each_message_alone(events):
    computed = {t for e in of(events, "aten::") for t in range(e["ts"], e["ts"] + e["dur"])}
    return sum(len(set(range(e["ts"], e["ts"] + e["dur"])) - computed) for e in of(events, "gloo:"))


def each_operation_hides(events):
    """Whoever subtracts what each operation shares with each message."""
    exposed = 0
    for message in of(events, "gloo:"):
        start, end = message["ts"], message["ts"] + message["dur"]
        exposed += end - start
        for e in of(events, "aten::"):
            exposed -= max(0, min(end, e["ts"] + e["dur"]) - max(start, e["ts"]))
    return exposed


def all_without_arithmetic(events):
    computed = {t for e in of(events, "aten::") for t in range(e["ts"], e["ts"] + e["dur"])}
    return max(e["ts"] + e["dur"] for e in of(events, "")) - len(computed)


def all_events_hide(events):
    """An event such as "step" counts as arithmetic."""
    return exposed_us([event | {"name": event["name"].replace("step", "aten::")}
                       for event in events])  # fmt: skip


def never_sorted(events):
    covered, last = {"aten::": 0, "gloo:": 0}, 0
    for kind in covered:
        for e in of(events, kind):
            covered[kind] += max(0, e["ts"] + e["dur"] - max(e["ts"], last))
            last = max(last, e["ts"] + e["dur"])
    return covered["gloo:"]


def in_milliseconds(events):
    return exposed_us(events) / 1000


def exposed_not_returned(events):
    exposed_us(events)


# A placement, improved


def improved_stub(placement, devices, seconds):
    """A placement that no move of one operation makes shorter."""
    ...


def best_move_of_all(placement, devices, seconds):
    while True:
        moves = [placement | {name: d} for name in placement for d in devices]
        best = min(moves, key=seconds)
        if seconds(best) >= seconds(placement):
            return placement
        placement = best


def one_round(placement, devices, seconds):
    best = dict(placement)
    for name in placement:
        best[name] = min(devices, key=lambda d: seconds(best | {name: d}))
    return best


def first_move_only(placement, devices, seconds):
    for name in placement:
        for device in devices:
            if seconds(placement | {name: device}) < seconds(placement):
                return placement | {name: device}
    return placement


def in_place(placement, devices, seconds):
    placement.update(improved(placement, devices, seconds))
    return placement


def every_placement(placement, devices, seconds):
    every = itertools.product(devices, repeat=len(placement))
    return min((dict(zip(placement, each)) for each in every), key=seconds)


def ten_rounds(placement, devices, seconds, rounds=10, order=1):
    for _, name, device in itertools.product(range(rounds), [*placement][::order], devices):
        placement = min(placement, placement | {name: device}, key=seconds)
    return placement


def nine_rounds_from_the_back(placement, devices, seconds):
    return ten_rounds(placement, devices, seconds, rounds=9, order=-1)


def thirty_rounds(placement, devices, seconds):
    """As many as the longest chain needs."""
    placement, shortest = dict(placement), seconds(placement)
    for _, name in itertools.product(range(30), placement):
        for device in {*devices} - {placement[name]}:
            if (now := seconds(placement | {name: device})) < shortest:
                placement[name], shortest = device, now
    return placement


def all_on_one(placement, devices, seconds):
    return dict.fromkeys(placement, devices[0])


def as_it_was(placement, devices, seconds):
    return dict(placement)


def its_seconds(placement, devices, seconds):
    return seconds(improved(placement, devices, seconds))


def only_what_moves(placement, devices, seconds):
    return seconds(dict.fromkeys(list(placement)[1:], devices[-1]))


# Frameworks


def but(**other):
    return tuple((CASES | other).values())


# Timed cold


def warm_by_shape(compile, fn, inputs, clock):
    compiled = compile(fn)
    for x in {tuple(x.shape): x for x in inputs}.values():
        compiled(x)

    def seconds(call):
        start = clock()
        for x in inputs:
            call(x)
        return clock() - start

    return seconds(fn) / seconds(compiled)


def ratios_of_calls(compile, fn, inputs, clock):
    compiled, ratios = compile(fn), []

    def seconds(call, x):
        start = clock()
        call(x)
        return clock() - start

    for x in inputs:
        seconds(compiled, x)
        ratios.append(seconds(fn, x) / seconds(compiled, x))
    return statistics.median(ratios)


def cold(compile, fn, inputs, clock):
    compiled = compile(fn)
    start = clock()
    for x in inputs:
        compiled(x)
    taken = clock() - start
    start = clock()
    for x in inputs:
        fn(x)
    return (clock() - start) / taken


def warm_for_one_shape(compile, fn, inputs, clock):
    start = clock()
    for x in inputs:
        fn(x)
    eager = clock() - start
    compiled = compile(fn)
    compiled(inputs[0])
    start = clock()
    for x in inputs:
        compiled(x)
    return eager / (clock() - start)


def upside_down(compile, fn, inputs, clock):
    return 1 / compiled_gain(compile, fn, inputs, clock)


def compiled_anew(compile, fn, inputs, clock):
    for x in inputs:
        compile(fn)(x)
    start = clock()
    for x in inputs:
        compile(fn)(x)
    taken = clock() - start
    start = clock()
    for x in inputs:
        fn(x)
    return (clock() - start) / taken


def never_compiled(compile, fn, inputs, clock):
    return 1.0


def without_the_first(compile, fn, inputs, clock):
    start = clock()
    for x in inputs:
        fn(x)
    eager = clock() - start
    compiled = compile(fn)
    compiled(inputs[0])
    start = clock()
    for x in inputs[1:]:
        compiled(x)
    return eager / (clock() - start)


def gain_not_returned(compile, fn, inputs, clock):
    compiled_gain(compile, fn, inputs, clock)


GALLERIES = [
    Gallery("exposed_us", exposed_stub, [exposed_us, by_microsecond], {
        "that is all of the messages": messages_once,
        "what it does not hide is wanted": the_hidden_part,
        "hides only the messages that are under way at the same time": one_minus_the_other,
        "the time passes once": each_message_alone,
        "the same time counts once": each_operation_hides,
        "where is there only a message": all_without_arithmetic,
        "its name begins with aten::": all_events_hide,
        "draw both kinds of bars": never_sorted,
        "microseconds are wanted": in_milliseconds,
        "nothing came back": exposed_not_returned,
    }),
    Gallery("improved", improved_stub, [improved, best_move_of_all], {
        "still makes it shorter": first_move_only,
        "When may you stop": as_it_was,
        "the placement that was given has changed": in_place,
        "Move one operation at a time": every_placement,
        "and stop after a round that has found none": thirty_rounds,
        "s before": all_on_one,
        "a placement {operation: device} is wanted": its_seconds,
        "for each operation where it is": only_what_moves,
        "9 operations on 3 devices: to move one more operation": one_round,
        "to move one more operation, op 20": ten_rounds,
        "to move one more operation, op 21": nine_rounds_from_the_back,
    }),
    Gallery("frameworks", (...,) * 5, [but(), list(but())], {
        "buys nothing": but(a="FSDP2"),
        "112 GB": but(b="DDP"),
        "no layer needs to be cut": but(b="DTensor"),
        "this layer whole does not fit": but(c="FSDP2"),
        "it parts a net between layers": but(c="pipelining"),
        "three model sizes a step": but(d="FSDP2"),
        "in each layer, forward and backward": but(d="DTensor"),
        "there is one GPU": but(e="DDP"),
        "choose one of": but(e="JAX"),
        "only add its bubble": but(a="pipelining"),
        "five names are wanted": ("DDP", "FSDP2"),
        "for a to e, not": "DDP",
    }),
    Gallery("compiled_gain", compiled_gain_with_the_bug,
            [compiled_gain, warm_by_shape, ratios_of_calls], {
        "1 compilation(s) of 30 s are in the time": cold,
        "when it first meets a shape": warm_for_one_shape,
        "in units of the other": upside_down,
        "each begins anew": compiled_anew,
        "nothing was compiled": never_compiled,
        "of the same inputs": without_the_first,
        "a number is wanted": gain_not_returned,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
