"""Exercises of notebook 24: what a trace says of messages that nobody hides, a placement that gets
better move by move, a framework for each case, a compiled function that was timed cold."""

import random
from itertools import pairwise

import torch

from course.classroom.answers import function, number
from course.classroom.comparison import close, compare
from course.classroom.problems import Exercise, Wrong

# Messages that nothing hides


def exposed_us(events):
    """Microseconds in which a message ("gloo:...") is under way and no arithmetic ("aten::...")."""
    lasted = [event for event in events if event["ph"] == "X"]
    arithmetic = _spans(lasted, "aten::")
    return _covered(arithmetic + _spans(lasted, "gloo:")) - _covered(arithmetic)


def _spans(events, beginning):
    return [(event["ts"], event["ts"] + event["dur"]) for event in events
            if event["name"].startswith(beginning)]  # fmt: skip


def _covered(spans):
    """The length of what the spans cover, what overlaps counted once."""
    covered, last = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0, end - max(start, last))
        last = max(last, end)
    return covered


def lasted(name, ts, dur):
    """An event of a Chrome trace that lasted."""
    return {"ph": "X", "name": name, "ts": ts, "dur": dur}


def begun(name, ts):
    """One that did not."""
    return {"ph": "i", "name": name, "ts": ts}


REDUCE, GATHER, MM, ADD = "gloo:all_reduce", "gloo:all_gather", "aten::mm", "aten::add"
TRACES = (
    [lasted(MM, 0, 100), lasted(REDUCE, 60, 100)],
    [lasted("step", 0, 260), lasted(REDUCE, 200, 120), lasted(MM, 0, 100), lasted(ADD, 300, 50)],
    [lasted(MM, 0, 100), lasted(ADD, 20, 30), lasted(REDUCE, 10, 120), begun("gloo:wait", 5)],
    [lasted(REDUCE, 0, 100), lasted(GATHER, 50, 100), lasted(MM, 120, 10), lasted(MM, 140, 200)],
    [lasted(MM, 0, 10), lasted(ADD, 20, 10), lasted(REDUCE, 5, 20)],
    [lasted(MM, 0, 10), begun("aten::start", 2)],
)


def check_exposed_us(answer):
    def durations(events, beginning):
        return sum(end - start for start, end in _spans(only(events), beginning))

    def only(events):
        return [event for event in events if event["ph"] == "X"]

    def each_alone(events):
        arithmetic = _spans(only(events), "aten::")
        return sum(_covered([*arithmetic, span]) - _covered(arithmetic)
                   for span in _spans(only(events), "gloo:"))  # fmt: skip

    def beside_nothing(events):
        others = [event for event in only(events) if not event["name"].startswith("gloo:")]
        return _covered(_spans(only(events), "")) - _covered(_spans(others, ""))

    def inner_twice(events):
        arithmetic, messages = (_spans(only(events), kind) for kind in ("aten::", "gloo:"))
        beside = (min(a[1], m[1]) - max(a[0], m[0]) for a in arithmetic for m in messages)
        return durations(events, "gloo:") - sum(length for length in beside if length > 0)

    def hidden(events):
        return _covered(_spans(only(events), "gloo:")) - exposed_us(events)

    slips = [
        (hidden, "that is what arithmetic hides: what it does not hide is wanted."),
        (lambda events: _covered(_spans(only(events), "gloo:")),
         "that is all of the messages: a part of them passes behind arithmetic."),
        (lambda events: durations(events, "gloo:"),
         "that is the sum of all messages: a part of them passes behind arithmetic."),
        (beside_nothing, "not every event is arithmetic: its name begins with aten::."),
        (each_alone, "where two messages are under way at once, the time passes once."),
        (lambda events: durations(events, "gloo:") - durations(events, "aten::"),
         "arithmetic hides only the messages that are under way at the same time."),
        (inner_twice, "an operation inside of another hides no more: the same time counts once."),
        (lambda events: exposed_us(events) / 1e3, "microseconds are wanted, as in the trace."),
        (lambda events: exposed_us(events) / 1e6, "microseconds are wanted, as in the trace."),
    ]  # fmt: skip
    compare(answer, exposed_us, [(trace,) for trace in TRACES], slips, shape_is="one number",
            otherwise="draw both kinds of bars: where is there only a message?")  # fmt: skip
    return "also for messages that overlap, and for operations inside of others."


# A placement, improved

BUDGET = 40  # simulations for each operation and device


def improved(placement, devices, seconds):
    """A placement {operation: device} that no move of one operation makes shorter."""
    best, shortest = dict(placement), seconds(placement)
    moved = True
    while moved:
        moved = False
        for name in placement:
            for device in devices:
                other = best | {name: device}
                if device != best[name] and seconds(other) < shortest:
                    best, shortest, moved = other, seconds(other), True
    return best


class Simulated:
    """Operations that compute for a while and send to one another, on devices; counts how often it
    was asked."""

    def __init__(self, operations, devices, seed):
        chance = random.Random(seed)
        self.names = [f"op {number}" for number in range(operations)]
        self.devices, self.asked, self.most = devices, 0, BUDGET * operations * len(devices)
        self.work = {name: chance.randint(1, 9) for name in self.names}
        self.edges = {(chance.choice(self.names[:n]), self.names[n]): chance.randint(1, 4)
                      for n in range(1, operations)}  # fmt: skip

    def seconds(self, placement):
        """Of a step: the load of the device that has most, and all that is sent."""
        self.asked += 1
        if self.asked > self.most:
            raise Wrong(f"{len(self.names)} operations on {len(self.devices)} devices: more than "
                        f"{self.most} simulations. Move one operation at a time, and stop after a "
                        "round that has found none.")  # fmt: skip
        if set(placement) != set(self.names):
            raise Wrong("a placement says for each operation where it is, and for no other.")
        loads = dict.fromkeys(self.devices, 0)
        for name, device in placement.items():
            loads[device] += self.work[name]
        sent = [cost for (a, b), cost in self.edges.items() if placement[a] != placement[b]]
        return max(loads.values()) + sum(sent)


class Chain(Simulated):
    """A heavy operation at either end, each on its own device, and between the two a chain whose
    links cost more and more: its operations are worth moving one after the other, the last first,
    so that whoever tries them from the front finds one in each round.  So a long chain needs more
    rounds than a short one allows: no fixed number of them is right for both."""

    def __init__(self, operations, devices):
        super().__init__(operations, devices, seed=0)
        first, *between, last = self.names
        self.work = dict.fromkeys(between, 1) | {first: 100, last: 100}
        self.edges = {pair: 3 * n for n, pair in enumerate(pairwise(self.names), 1)}
        self.most = 4 * operations * (operations + 1)


def check_improved(answer):
    for operations, devices, seed in (9, "abc", 3), (12, "abc", 0), (14, "abcd", 3), (4, "ab", 2):
        task = Simulated(operations, list(devices), seed)
        given = {name: devices[n % len(devices)] for n, name in enumerate(task.names)}
        _check_on(answer, task, given)
    for operations, way in (32, 1), (32, -1), (6, 1):  # from the front, and from the back
        task = Chain(operations, ["a", "b"])
        ahead = dict.fromkeys(task.names, "a") | {task.names[-1]: "b"}
        _check_on(answer, task, dict([*ahead.items()][::way]))
    return "no single move makes it shorter, and few placements were simulated."


def _check_on(answer, task, given):
    got = function(answer)(handed := dict(given), list(task.devices), task.seconds)
    _judge_placement(got, given, handed, task)


def _judge_placement(got, given, handed, task):
    where = f"{len(task.names)} operations on {len(task.devices)} devices"
    if not isinstance(got, dict):
        raise Wrong(f"{where}: a placement {{operation: device}} is wanted, not {got!r:.40}.")
    if handed != given:
        raise Wrong(f"{where}: the placement that was given has changed; return another one.")
    task.asked = -(10**6)  # this is the check's own asking
    before, after = task.seconds(given), task.seconds(got)
    if after > before:
        raise Wrong(f"{where}: it takes {after} s, and took {before} s before.")
    for name in task.names:
        for device in task.devices:
            if task.seconds(got | {name: device}) < after:
                raise Wrong(f"{where}: to move one more operation, {name}, still makes it shorter. "
                            "When may you stop?")  # fmt: skip


# A framework for each case

CASES = {"a": "DDP", "b": "FSDP2", "c": "DTensor", "d": "pipelining", "e": "torch.compile"}
WHY_NOT = {
    "a": {
        "FSDP2": "the account of all states fits on one GPU, so gathering weights twice a step "
                 "buys nothing.",
        "DTensor": "no layer is too large; cutting them would put messages into each forward.",
        "pipelining": "the net fits on one GPU; a pipeline would only add its bubble.",
        "torch.compile": "it may help each GPU, but it does not bring the eight together.",
    },
    "b": {
        "DDP": "16 bytes for each of 7 billion weights are 112 GB, and each GPU has 80.",
        "DTensor": "it would fit, but sends in each layer of forward and backward, and its cables "
                   "between servers are no NVLink; no layer needs to be cut.",
        "pipelining": "it would fit, but with its bubble, and the loop would have to be rewritten; "
                      "the cables are fast enough to gather the weights.",
        "torch.compile": "it does not make the account of the weights smaller.",
    },
    "c": {
        "DDP": "one layer alone does not fit on one GPU.",
        "FSDP2": "it gathers a layer before it computes, and this layer whole does not fit.",
        "pipelining": "it parts a net between layers, and one layer alone does not fit.",
        "torch.compile": "it does not make the layer smaller.",
    },
    "d": {
        "DDP": "weights and states do not fit on one GPU, and the gradients would cross the slow "
               "cable.",
        "FSDP2": "it would send all weights over the slow cable, three model sizes a step.",
        "DTensor": "it would send over the slow cable in each layer, forward and backward.",
        "torch.compile": "it does not put a net on two servers.",
    },
    "e": {
        "DDP": "there is one GPU.",
        "FSDP2": "there is one GPU.",
        "DTensor": "there is one GPU.",
        "pipelining": "there is one GPU.",
    },
}  # fmt: skip


def check_frameworks(answer):
    if not isinstance(answer, tuple | list) or len(answer) != len(CASES):
        raise Wrong(f"five names are wanted, for a to e, not {answer!r:.40}.")
    for (case, right), given in zip(CASES.items(), answer):
        if given not in CASES.values():
            raise Wrong(f"case {case}: choose one of {', '.join(CASES.values())}, not {given!r}.")
        if given != right:
            raise Wrong(f"case {case}, {given}: {WHY_NOT[case][given]}")
    return "each for what it alone can do; real programs combine them."


# Timed cold


def compiled_gain(compile, fn, inputs, clock):
    """How many times as fast as `fn` its compiled form is on `inputs`, once it is compiled."""
    start = clock()
    for x in inputs:
        fn(x)
    eager = clock() - start
    compiled = compile(fn)
    for x in inputs:
        compiled(x)
    start = clock()
    for x in inputs:
        compiled(x)
    return eager / (clock() - start)


def compiled_gain_with_the_bug(compile, fn, inputs, clock):
    """How many times as fast as `fn` its compiled form is on `inputs`, once it is compiled."""
    start = clock()
    for x in inputs:
        fn(x)
    eager = clock() - start
    compiled = compile(fn)
    start = clock()
    for x in inputs:
        compiled(x)
    return eager / (clock() - start)


class Workshop:
    """A clock of its own, a function, and a compiler that works when it first meets a shape."""

    COMPILING_S = 30.0

    def __init__(self, gain):
        self.now, self.gain, self.compiled = 0.0, gain, 0

    def clock(self):
        return self.now

    def fn(self, x):
        self.now += 1e-3 * len(x)

    def compile(self, fn):
        known = set()
        self.compiled += 1

        def compiled(x):
            if tuple(x.shape) not in known:
                known.add(tuple(x.shape))
                self.now += self.COMPILING_S
            self.now += 1e-3 * len(x) / self.gain

        return compiled


def check_compiled_gain(answer):
    same, rest = [torch.zeros(64, 3)] * 8, [*[torch.zeros(64, 3)] * 8, torch.zeros(16, 3)]
    for gain, inputs, kind in ((2.5, same, "8 equal batches"), (0.8, same, "8 equal batches"),
                               (2.5, rest, "8 equal batches and a smaller one")):  # fmt: skip
        shop = Workshop(gain)
        got = number(function(answer)(shop.compile, shop.fn, inputs, shop.clock))
        if not close(got, gain, 0.03):
            _refuse_gain(got, gain, inputs, shop, f"{kind}, {gain} times as fast, and it says "
                         f"{got:.3g}")  # fmt: skip
    return "every shape was compiled before the clock was started."


def _refuse_gain(got, gain, inputs, shop, where):
    eager = 1e-3 * sum(len(x) for x in inputs)
    shapes = len({len(x) for x in inputs})
    if shop.compiled == 0:
        raise Wrong(f"{where}: nothing was compiled.")
    if close(got, 1 / gain, 0.03):
        raise Wrong(f"{where}: that is the time of the compiled one in units of the other.")
    for compilations in range(1, shapes + 1):
        if close(got, eager / (eager / gain + compilations * shop.COMPILING_S), 0.03):
            raise Wrong(f"{where}: so {compilations} compilation(s) of {shop.COMPILING_S:g} s are "
                        "in the time. A compiler works when it first meets a shape.")  # fmt: skip
    if shop.compiled > 1:
        raise Wrong(f"{where}: compile was called {shop.compiled} times, and each begins anew.")
    raise Wrong(f"{where}: are both times of the same inputs?")


EXERCISES = [
    Exercise(
        "exposed_us",
        "write exposed_us(events), of the list traceEvents of one rank: the microseconds in which "
        "a message (its name begins with gloo:) is under way and no arithmetic (aten::).",
        check_exposed_us,
        (
            'only events with "ph" equal to "X" have a length.',
            "how long is the time in which anything is under way, messages or arithmetic? Sort "
            "the pairs (begin, end) and add up what is new in each.",
            "exposed = covered(arithmetic and messages) - covered(arithmetic)",
        ),
        (exposed_us, _spans, _covered),
    ),
    Exercise(
        "improved",
        "write improved(placement, devices, seconds): a placement {operation: device} that is as "
        "short or shorter, and that no move of one operation makes shorter; seconds(placement) "
        "simulates one.",
        check_improved,
        (
            "placement | {name: device} is a placement with one operation moved.",
            "keep a move only if seconds says that it is shorter.",
            "after a move, others may be worth it that were not before: go on until a whole round "
            "has found none.",
        ),
        improved,
    ),
    Exercise(
        "frameworks",
        "choose one of DDP, FSDP2, DTensor, pipelining and torch.compile for each case: five "
        "names, for a to e.",
        check_frameworks,
        (
            "first the account: 16 bytes for each weight, with Adam in mixed precision.",
            "if it does not fit: does each single layer fit? Is the cable fast?",
            "each of the five is the answer once.",
        ),
        '("DDP", "FSDP2", "DTensor", "pipelining", "torch.compile")',
    ),
    Exercise(
        "compiled_gain",
        "find the bug in compiled_gain(compile, fn, inputs, clock), which says that compiling "
        "makes everything slower, and repair it.",
        check_compiled_gain,
        (
            "when does torch.compile compile: when it is called, or when its function is?",
            "what happens at the first input of another shape?",
            "call the compiled function on all inputs once before you start the clock.",
        ),
        compiled_gain,
        given=compiled_gain_with_the_bug,
    ),
]
