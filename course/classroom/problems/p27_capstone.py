"""Exercises of notebook 27: a problem sheet on one plan, a plan within a budget, and the rows that
a rank reads."""

import functools
import math

from course.classroom.answers import function, number, on_ranks
from course.classroom.problems import Exercise, Wrong
from course.cluster.planning import (
    A100_ETHERNET,
    DGX_A100,
    DGX_H100,
    Assumptions,
    Budget,
    Plan,
    Transformer,
    check_memory,
    estimate,
    overruns,
)
from course.parallel.hybrid import Grid

NETWORK = Transformer(features=12288, heads=96, blocks=4, length=2048)
ASSUMED = Assumptions(achieved=0.6, letters=20 * NETWORK.weights,
                      prices={"A100": 1.2, "A100, 10 Gb/s": 0.9, "H100": 4.0})  # fmt: skip
SMALL_BUDGET = Budget(money=12_500, watts=21_000, days=30)
ROWS = 256

# The sheet: 20 billion weights, 400 billion letters; 8 servers of 8 cards; data 4 x pipeline 4 x
# tensor 4, 12 micro-batches, the optimizer sharded.
WEIGHTS, LETTERS, CARDS, SERVERS = 20e9, 400e9, 64, 8
GIGABYTES = WEIGHTS / 16 * (2 + 2 + 12 / 4) / 1e9
DAYS = 6 * WEIGHTS * LETTERS / (CARDS * 0.4 * 300e12) / 86400
IDLE = 3 / (12 + 3)
CARD_GRADIENT = 2 * WEIGHTS / 16  # bytes
GRADIENT_S = 2 * 3 / 4 * CARD_GRADIENT / (200e9 / 8)
SAVE_S, MTBF_S = 14 * WEIGHTS / 10e9, 300 * 86400 / SERVERS
INTERVAL_MIN = math.sqrt(2 * SAVE_S * MTBF_S) / 60
LONG = DAYS / (1 - IDLE)
MONEY = LONG * 24 * CARDS * 2.5
MWH = LONG * 24 * SERVERS * 6 / 1000

# {name: (question, answer, unit, {slip: sentence}, what else to ask, hints, how)}
SHEET = {
    "sheet_memory": (
        "how many gigabytes of weights, gradients and optimizer has a card?", GIGABYTES, "GB",
        {
            16 * WEIGHTS / 16 / 1e9: "the optimizer's 12 bytes are sharded over the data axis.",
            16 * WEIGHTS / 64 / 1e9: "weights and gradients are whole on every data rank: only the "
            "optimizer is divided by 4 more.",
            7 * WEIGHTS / 1e9: "pipeline x tensor divide the weights by 16.",
            16 * WEIGHTS / 1e9: "that is the whole network on one card: what divides what?",
            WEIGHTS / 16 / 1e9: "that is the number of weights, in billions: each takes bytes.",
            5 * WEIGHTS / 16 / 1e9: "weights take 2 bytes, and gradients 2 more.",
            GIGABYTES * 1e9: "that is bytes: gigabytes were asked for.",
            GIGABYTES * 1e9 / 2**30: "a gigabyte is 10^9 bytes here, not 2^30.",
        },
        "which of the 2 + 2 + 12 bytes are divided by 16, and which by 64?",
        ("a card has a sixteenth of the weights: pipeline x tensor.",
         "2 + 2 bytes of these, and 12 / 4 for the optimizer."),
        "20e9 / 16 x (2 + 2 + 12/4) bytes = 8.75 GB",
    ),
    "sheet_days": (
        "how many days of arithmetic is that on all cards together?", DAYS, "days",
        {
            DAYS / 3: "that is the forward pass: backward takes twice as much again.",
            DAYS * 2 / 3: "that is the backward pass alone: forward comes before it.",
            DAYS / 6: "each weight takes 6 operations for each letter.",
            DAYS * 0.4: "the cards reach 40 % of their peak.",
            DAYS * CARDS: "that is one card: there are 64.",
            DAYS * 8: "that is a server's worth of cards: there are 8 servers of 8.",
            DAYS * 24: "that is hours: days were asked for.",
            DAYS * 86400: "that is seconds: days were asked for.",
            DAYS / 4: "the data axis is among the 64 cards already.",
        },
        "operations: 6 x weights x letters; how many a second do the cards do?",
        ("operations: 6 x weights x letters.", "64 cards do 64 x 0.4 x 300e12 a second."),
        "6 x 20e9 x 400e9 / (64 x 0.4 x 300e12) seconds / 86,400 = 72.3 days",
    ),
    "sheet_bubble": (
        "what share of a step is a card idle in the pipeline, in per cent?", 100 * IDLE, "%",
        {
            IDLE: "that is a share of 1: per cent were asked for.",
            100 * 3 / 12: "that is 3 / 12, idle against working time, or 4 / 16: of p stages, "
            "p - 1 are waited for, and the share of the whole step was asked for.",
            100 * 11 / 15: "that exchanges stages and micro-batches.",
            100 * (1 - IDLE): "that is the share in which it works.",
            100 * 15 / 27: "the pipeline has 4 stages: 16 ranks share one network, but 4 of them "
            "are one stage.",
            100 * 3 / 51: "each data rank has 12 micro-batches of its own.",
        },
        "(p - 1) / (m + p - 1), with p stages and m micro-batches.",
        ("p = 4 stages and m = 12 micro-batches.", "(p - 1) / (m + p - 1)"),
        "(p - 1) / (m + p - 1) = 3 / (12 + 3) = 20 %",
    ),
    "sheet_gradients": (
        "for how many seconds are gradients and weights on a card's cable in a step?",
        GRADIENT_S, "s",
        {
            GRADIENT_S / 8: "200 Gb/s are gigabits: 8 of them are a gigabyte.",
            GRADIENT_S * 2: "a gradient in bf16 has 2 bytes.",
            GRADIENT_S * 2 / 3: "that is the whole gradient, once: it is reduce-scattered, and "
            "weights are all-gathered, and 3/4 travel each time.",
            GRADIENT_S / 2: "there are two of them: a reduce-scatter, and an all-gather.",
            GRADIENT_S * 4 / 3: "of its own part a rank sends nothing: 3/4 travel.",
            GRADIENT_S * 16: "a card has a sixteenth of all weights.",
            GRADIENT_S / 4: "all four data ranks have this part of the network: it is not divided "
            "by 4 once more.",
            GRADIENT_S * 12: "once a step, and not once a micro-batch.",
            GRADIENT_S * 1e3: "that is milliseconds: seconds were asked for.",
            GRADIENT_S * 1.3125: "that takes 63/64: only the 4 ranks of the data axis sum.",
        },
        "bytes of a card's gradient, times 2 x 3/4, over bytes a second.",
        ("the gradient of a card: 20e9 / 16 numbers of 2 bytes.",
         "reduce-scatter and all-gather send 3/4 of it each.", "200 Gb/s are 25e9 bytes a second."),
        "2 x 3/4 x 2.5e9 bytes / 25e9 bytes a second = 0.15 s",
    ),
    "sheet_interval": (
        "after how many minutes of work is a checkpoint due, by Young's formula?",
        INTERVAL_MIN, "minutes",
        {
            INTERVAL_MIN * math.sqrt(8): "that is the failure of one server: any of the 8 ends the "
            "job.",
            INTERVAL_MIN / math.sqrt(8): "300 days are of a server with its 8 cards: divide by 8 "
            "servers, and not by 64 cards.",
            INTERVAL_MIN / math.sqrt(2): "Young's formula has a 2 below the root.",
            INTERVAL_MIN * 60: "that is seconds: minutes were asked for.",
            INTERVAL_MIN / 60: "that is hours: minutes were asked for.",
            INTERVAL_MIN / math.sqrt(7): "a checkpoint has 14 bytes a weight, and not 2.",
            INTERVAL_MIN * math.sqrt(8 / 7): "a checkpoint has 14 bytes a weight: gradients are "
            "not in it.",
            INTERVAL_MIN / 4: "all cards together write one copy of 14 bytes a weight, at 10 GB/s.",
            INTERVAL_MIN**2 * 3600 / 60: "the root is missing.",
        },
        "sqrt(2 x seconds of a save x seconds between failures of the job).",
        ("a save takes 14 x 20e9 / 10e9 seconds.",
         "8 servers fail 8 times as often as one: 300 / 8 days.", "sqrt(2 x save x that)"),
        "sqrt(2 x 28 s x 3.24e6 s) = 13,470 s = 224 minutes",
    ),
    "sheet_money": (
        "with the idle time of the pipeline, and nothing else added: how much money is the "
        "training?", MONEY, "coins",
        {
            MONEY * (1 - IDLE): "that is the arithmetic alone: the bubble is paid as well.",
            MONEY * (1 - IDLE) * (1 + IDLE): "20 % of the step are idle: divide by 0.8, which is "
            "more than 20 % on top.",
            MONEY / 24: "a price is for an hour: a day has 24.",
            MONEY / CARDS: "that is one card.",
            MONEY / 8: "2.5 are for a card, and not for a server of 8.",
            MONEY * 60: "a price is for an hour, not for a minute.",
            MONEY / 1000: "that is in thousands: coins were asked for.",
        },
        "days of arithmetic / 0.8, in hours, times cards, times the price.",
        ("the days of the second question, divided by 1 - 0.2.", "x 24 hours x 64 cards x 2.5"),
        "72.3 / 0.8 days x 24 x 64 x 2.5 = 347,000",
    ),
    "sheet_energy": (
        "how much energy is that, in megawatt-hours?", MWH, "MWh",
        {
            MWH * 1000: "that is kilowatt-hours.",
            MWH * 1e6: "that is watt-hours.",
            MWH / 24: "48 kW for so many days: a day has 24 hours.",
            MWH * 8: "6 kW are for a server, and not for a card.",
            MWH / 8: "there are 8 servers.",
            MWH * (1 - IDLE): "idle cards need power, too: take the days with the bubble.",
            MWH * 3.6: "that is gigajoules.",
        },
        "kilowatts of all servers, times hours.",
        ("8 servers take 48 kW.", "times the hours with the bubble, / 1000."),
        "48 kW x 90.4 days x 24 h = 104 MWh",
    ),
}  # fmt: skip


def check_number(name, answer):
    """Judge a number of the sheet, to 2 %."""
    question, right, unit, slips, otherwise, _, how = SHEET[name]
    got = number(answer)
    for slip, sentence in slips.items():
        if abs(got / slip - 1) < 0.01:
            raise Wrong(sentence)
    if abs(got / right - 1) > 0.02:
        raise Wrong(f"that is another number: {otherwise}")
    return f"{how}."


def within_budget():
    """A plan for the network, of 256 rows, that fits its cards and the smaller budget."""
    return Plan(NETWORK, DGX_A100, 2, data=4, tensor=4, rows=256, micro_batches=8, sharded=True)


def check_within_budget(answer):
    plan = answer() if callable(answer) and not isinstance(answer, type) else answer
    if not isinstance(plan, Plan):
        raise Wrong(f"a Plan(...) is wanted, not {answer!r:.40}.")
    kinds = DGX_A100, A100_ETHERNET, DGX_H100
    for right, sentence in (
        (plan.network == NETWORK, "train the network of this notebook, and no other."),
        (
            plan.rows == ROWS,
            f"a batch has {ROWS} rows, not {plan.rows}: learning hangs on it.",
        ),
        (plan.node in kinds, f"the servers are {', '.join(kind.name for kind in kinds)}."),
    ):
        if not right:
            raise Wrong(sentence)
    try:
        check_memory(plan)
    except ValueError as trouble:
        raise Wrong(f"{trouble}.") from None
    told = estimate(plan, ASSUMED)
    if over := overruns(told, SMALL_BUDGET):
        raise Wrong(f"{'; '.join(over)}.")
    return (f"{plan}: {told.days:.1f} days, {told.money:,.0f} coins, {told.watts / 1e3:.1f} kW, "
            "by the formula.")  # fmt: skip


def my_rows(grid, rows):
    """The numbers of those of `rows` rows that this rank reads."""
    parts, mine = grid.axes["data"], grid.coordinates["data"]
    return [row for row in range(rows) if row * parts // rows == mine]


def my_rows_with_the_bug(grid, rows):
    """The numbers of those of `rows` rows that this rank reads."""
    return list(range(rows))[grid.comm.rank :: grid.comm.size]


def read_on_ranks(comm, answer, axes, rows):
    """The rows that the answer gives this rank, as plain numbers, and its data coordinate."""
    grid = Grid(comm, **axes)
    got = answer(grid, rows)
    if got is not None:
        got = [int(row) for row in got]
    return got, grid.coordinates["data"]


def check_my_rows(answer):
    cases = [
        ({"data": 4}, 8),
        ({"data": 2, "tensor": 2}, 8),
        ({"data": 2, "pipeline": 2}, 8),
        ({"data": 1, "pipeline": 2, "tensor": 2}, 4),
        ({"data": 2, "tensor": 2}, 7),
    ]
    for axes, rows in cases:
        told, _ = on_ranks(read_on_ranks, 4, function(answer), axes, rows)
        grid = " x ".join(f"{name} {size}" for name, size in axes.items())
        _judge_rows(told, rows, f"{grid}, {rows} rows")
    return ("all ranks of a data coordinate read the same rows, and every row is read: the rank in "
            "the world does not matter, its data coordinate does.")  # fmt: skip


def _judge_rows(told, rows, where):
    if any(got is None for got, _ in told):
        raise Wrong("nothing came back: does the function end in return?")
    by_data = {}
    for rank, (got, mine) in enumerate(told):
        first, other = by_data.setdefault(mine, (got, rank))
        if sorted(first) != sorted(got):
            they = f"{where}: ranks {other} and {rank} work on one copy of the network"
            raise Wrong(f"{they}, and read {first} and {got}: they would compute with different "
                        "rows.")  # fmt: skip
    read = sorted(row for got, _ in by_data.values() for row in got)
    missing = sorted(set(range(rows)) - set(read))
    if missing:
        raise Wrong(f"{where}: nobody reads row {missing[0]}.")
    if len(read) > rows:
        twice = next(row for row in read if read.count(row) > 1)
        raise Wrong(f"{where}: row {twice} is read by two copies of the network.")
    if read != list(range(rows)):
        raise Wrong(f"{where}: there is no row {read[-1]}.")


EXERCISES = [
    *(Exercise(name, f"the problem sheet: {question}", functools.partial(check_number, name),
               hints, f"{how}.")
      for name, (question, _, _, _, _, hints, how) in SHEET.items()),
    Exercise(
        "within_budget",
        "make a Plan for the network of this notebook, with batches of 256 rows, that fits its "
        "cards and the smaller budget.",
        check_within_budget,
        (
            "how many servers of each kind does the power allow?",
            "overruns says what is too much, and check_memory what does not fit: begin there.",
            "two servers of one of the kinds do: shard the optimizer, or cut the layers.",
        ),
        within_budget,
    ),
    Exercise(
        "my_rows",
        "find the bug in my_rows(grid, rows), which is right where all ranks are copies of the "
        "network, and repair it: the numbers of those of `rows` rows that this rank reads.",
        check_my_rows,
        (
            "which ranks work together on one copy of the network?",
            "ranks that differ along tensor or pipeline must read the same rows.",
            'grid.axes["data"] parts, of which this rank takes number grid.coordinates["data"]',
        ),
        my_rows,
        given=my_rows_with_the_bug,
    ),
]  # fmt: skip
