"""Speed-ups, serial parts and times: answers that were really likely."""

from course.classroom.problems.p22_scaling import (
    device_seconds,
    device_seconds_with_the_bug,
    scaling_table,
    serial_part,
)
from tests.classroom.gallery import Gallery, gallery_tests

# The table


def table_stub(cards, rates):
    """A pair (speed-up, efficiency) for each number of cards, against the first of them."""
    ...


def table_in_a_loop(cards, rates):
    rows = []
    for count, rate in zip(cards, rates):
        perfect = rates[0] * count / cards[0]
        rows.append([rate / rates[0], rate / perfect])
    return rows


def in_another_order(cards, rates):
    return [(share, up) for up, share in scaling_table(cards, rates)]


def upside_down(cards, rates):
    return [(rates[0] / r, rates[0] / r * cards[0] / c) for c, r in zip(cards, rates)]


def by_cards_alone(cards, rates):
    return [(rate / rates[0], rate / rates[0] / count) for count, rate in zip(cards, rates)]


def against_one_card(cards, rates):
    one = rates[0] / cards[0]
    return [(rate / one, rate / one / count) for count, rate in zip(cards, rates)]


def in_per_cent(cards, rates):
    return [(up, 100 * share) for up, share in scaling_table(cards, rates)]


def speedups_only(cards, rates):
    return [up for up, _ in scaling_table(cards, rates)]


def against_the_row_before(cards, rates):
    before = [rates[0], *rates]
    return [(r / b, r / b / c) for c, r, b in zip(cards, rates, before)]


def table_not_returned(cards, rates):
    scaling_table(cards, rates)


# The serial part


def part_stub(ranks, speedup, scaling):
    """The part s that explains a speed-up."""
    ...


def part_by_trying(ranks, speedup, scaling):
    laws = {"strong": lambda s: 1 / (s + (1 - s) / ranks), "weak": lambda s: s + ranks * (1 - s)}
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if laws[scaling](middle) > speedup else (low, middle)
    return high


def what_divides(ranks, speedup, scaling):
    return 1 - serial_part(ranks, speedup, scaling)


def missing_efficiency(ranks, speedup, scaling):
    return 1 - speedup / ranks


def amdahl_always(ranks, speedup, scaling):
    return serial_part(ranks, speedup, "strong")


def gustafson_always(ranks, speedup, scaling):
    return serial_part(ranks, speedup, "weak")


def divided_by_p(ranks, speedup, scaling):
    return serial_part(ranks, speedup, scaling) * (ranks - 1) / ranks


def inverse_speedup(ranks, speedup, scaling):
    return 1 / speedup


def part_not_returned(ranks, speedup, scaling):
    serial_part(ranks, speedup, scaling)


# The time


def synchronized_in_every_turn(device, work, turns):
    device.synchronize()
    start = device.clock()
    for _ in range(turns):
        device.launch(work)
        device.synchronize()
    return (device.clock() - start) / turns


def turns_one_by_one(device, work, turns):
    device.synchronize()
    taken = 0.0
    for _ in range(turns):
        start = device.clock()
        device.launch(work)
        device.synchronize()
        taken += device.clock() - start
    return taken / turns


def not_at_the_end(device, work, turns):
    device.synchronize()
    start = device.clock()
    for _ in range(turns):
        device.launch(work)
    return (device.clock() - start) / turns


def synchronized_too_late(device, work, turns):
    start = device.clock()
    for _ in range(turns):
        device.launch(work)
    taken = device.clock() - start
    device.synchronize()
    return taken / turns * 2


def not_at_the_start(device, work, turns):
    start = device.clock()
    for _ in range(turns):
        device.launch(work)
    device.synchronize()
    return (device.clock() - start) / turns


def all_turns_together(device, work, turns):
    return device_seconds(device, work, turns) * turns


def one_turn_only(device, work, turns):
    return device_seconds(device, work, 1)


def warmed_up_before(device, work, turns):
    device.launch(work)
    return device_seconds(device, work, turns)


def warmed_up_inside(device, work, turns):
    device.synchronize()
    start = device.clock()
    for _ in range(turns + 1):
        device.launch(work)
    device.synchronize()
    return (device.clock() - start) / turns


def half_of_it(device, work, turns):
    return device_seconds(device, work, turns) / 2


def nothing_said(device, work, turns):
    device_seconds(device, work, turns)


GALLERIES = [
    Gallery("scaling_table", table_stub, [scaling_table, table_in_a_loop], {
        "in this order": in_another_order,
        "not of 1/2": upside_down,
        "the first row need not be one card": by_cards_alone,
        "the speed-up is against the first row": against_one_card,
        "1 is perfect, not 100": in_per_cent,
        "a pair for each number of cards": speedups_only,
        "what would perfect cards have done": against_the_row_before,
        "nothing came back": table_not_returned,
    }),
    Gallery("serial_part", part_stub, [serial_part, part_by_trying], {
        "the part that does not is wanted": what_divides,
        "the efficiency that is missing": missing_efficiency,
        "with weak scaling the work grows": amdahl_always,
        "with strong scaling the work stays": gustafson_always,
        "divide by p - 1": divided_by_p,
        "does the speed-up come out": inverse_speedup,
        "nothing came back": part_not_returned,
    }),
    Gallery("amdahl_on_64", ..., [24.16, "24.2", 24], {
        "by Amdahl's law it falls": 54.09,
        "that is Gustafson's law": 52.85,
        "the limit for endlessly many GPUs": 38,
        "that is the speed-up of 8 GPUs": 6.761,
        "put it into the law with 64 GPUs": 0.02618,
        "that is s in per cent": 2.618,
        "that is the efficiency": 0.3775,
        "multiplies two speed-ups": 163.3,
        "first find s from 8 GPUs": 12,
        "a number is wanted": "many",
    }),
    Gallery("device_seconds", device_seconds_with_the_bug,
            [device_seconds, synchronized_in_every_turn, turns_one_by_one, warmed_up_before], {
        "returns before the work is done": not_at_the_end,
        "the clock was read before the work was done": synchronized_too_late,
        "of earlier work to do when": not_at_the_start,
        "the mean was asked for": all_turns_together,
        "it was launched 1 times": one_turn_only,
        "what is done between the two readings": warmed_up_inside,
        "timed as 10 ms: what is done": half_of_it,
        "a number is wanted": nothing_said,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
