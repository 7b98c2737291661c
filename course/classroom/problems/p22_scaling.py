"""Exercises of notebook 22: speed-up and efficiency of a table, the serial part behind a speed-up,
what Amdahl's law makes of it, a time that was taken before the work was done."""

from course.classroom.answers import function, number
from course.classroom.comparison import close, compare
from course.classroom.problems import Exercise, Wrong

FP16 = {1: 795.33, 8: 5377.14}  # images a second of a DGX-1V, seed N


def scaling_table(cards, rates):
    """A pair (speed-up, efficiency) for each number of cards, against the first of them; rates are
    what they did a second."""
    speedups = [rate / rates[0] for rate in rates]
    return [(up, up * cards[0] / count) for up, count in zip(speedups, cards)]


def check_scaling_table(answer):
    cases = [([1, 2, 4, 8], [100.0, 190.0, 360.0, 640.0]), ([4, 16, 64], [50.0, 180.0, 600.0]),
             ([2], [7.0]), ([1, 64], [185.0, 8695.0])]  # fmt: skip

    def altered(change):
        return lambda cards, rates: [
            change(*row, cards[0], count) for row, count in zip(scaling_table(cards, rates), cards)
        ]

    slips = [
        (altered(lambda up, share, first, count: (share, up)),
         "the pair is (speed-up, efficiency), in this order."),
        (altered(lambda up, share, first, count: (1 / up, share / up / up)),
         "a rate that is twice as high is a speed-up of 2, not of 1/2."),
        (altered(lambda up, share, first, count: (up, up / count)),
         "the first row need not be one card: it has an efficiency of 1, whatever it is."),
        (altered(lambda up, share, first, count: (up * first, up * first / count)),
         "the speed-up is against the first row, which has 1."),
        (altered(lambda up, share, first, count: (up, 100 * share)),
         "an efficiency is a share: 1 is perfect, not 100."),
    ]  # fmt: skip
    otherwise = "what did the cards do a second, and what would perfect cards have done?"
    shape = "a pair for each number of cards"
    compare(answer, scaling_table, cases, slips, shape_is=shape, otherwise=otherwise)
    return "right, and also where the first row has more than one card."


def serial_part(ranks, speedup, scaling):
    """The part s that explains a speed-up: by Amdahl's law where `scaling` is "strong", by
    Gustafson's where it is "weak"."""
    if scaling == "strong":
        return (ranks / speedup - 1) / (ranks - 1)
    return (ranks - speedup) / (ranks - 1)


def check_serial_part(answer):
    cases = [(8, 4.0, "strong"), (8, 4.0, "weak"), (64, 47.0, "strong"), (64, 47.0, "weak"),
             (2, 1.9, "strong"), (2, 1.0, "weak"), (4, 1.0, "strong")]  # fmt: skip
    slips = [
        (lambda p, up, kind: 1 - serial_part(p, up, kind),
         "that is the part that divides: the part that does not is wanted."),
        (lambda p, up, kind: 1 - up / p, "that is the efficiency that is missing, not a part."),
        (lambda p, up, kind: serial_part(p, up, "strong"),
         "with weak scaling the work grows: solve speed-up = s + p (1 - s) for s."),
        (lambda p, up, kind: serial_part(p, up, "weak"),
         "with strong scaling the work stays: solve speed-up = 1 / (s + (1 - s) / p) for s."),
        (lambda p, up, kind: serial_part(p, up, kind) * (p - 1) / p,
         "divide by p - 1: one rank of p is there anyway."),
    ]  # fmt: skip
    compare(answer, serial_part, cases, slips, shape_is="one number",
            otherwise="put your s into the law: does the speed-up come out?")  # fmt: skip
    return "put into its law, it gives the speed-up again."


def check_amdahl_on_64(answer):
    got = number(answer)
    up = FP16[8] / FP16[1]
    s = serial_part(8, up, "strong")
    right = 1 / (s + (1 - s) / 64)
    weak = serial_part(8, up, "weak")
    slips = {
        up / 8 * 64: "that takes the efficiency of 8 GPUs for 64: by Amdahl's law it falls.",
        64 - 63 * weak: "that is Gustafson's law: Amdahl's was asked for.",
        1 / s: "that is the limit for endlessly many GPUs: 64 were asked for.",
        up: "that is the speed-up of 8 GPUs.",
        up * right: "that multiplies two speed-ups: s already holds for one GPU against many.",
        s: "that is s: put it into the law with 64 GPUs.",
        100 * s: "that is s in per cent: put it into the law with 64 GPUs.",
        right / 64: "that is the efficiency: the speed-up was asked for.",
        100 * right / 64: "that is the efficiency: the speed-up was asked for.",
    }
    for slip, sentence in slips.items():
        if abs(got / slip - 1) < 0.01:
            raise Wrong(sentence)
    if abs(got / right - 1) > 0.02:
        raise Wrong("that is another number: first find s from 8 GPUs, then put it into the law.")
    weak = serial_part(8, up, "weak")
    return (f"s = {s:.4f}, and by Amdahl's law 64 GPUs are worth {right:.1f}; by Gustafson's law, "
            f"from the same two rates, {weak + 64 * (1 - weak):.1f}.")  # fmt: skip


class Queue:
    """A device with a clock of its own: `launch` returns long before the work is done."""

    LAUNCH_S = 1e-5

    def __init__(self, busy_s=0.0):
        self.now, self.done = 0.0, busy_s
        self.launched = 0

    def launch(self, work):
        """Hand over work of so many seconds."""
        self.now += self.LAUNCH_S
        self.done = max(self.done, self.now) + work
        self.launched += 1

    def synchronize(self):
        """Wait until all that was handed over is done."""
        self.now = max(self.now, self.done)

    def clock(self):
        """Seconds of the program's own clock."""
        return self.now


def device_seconds(device, work, turns):
    """Seconds that `work` takes on `device`, the mean of some turns."""
    device.synchronize()
    start = device.clock()
    for _ in range(turns):
        device.launch(work)
    device.synchronize()
    return (device.clock() - start) / turns


def device_seconds_with_the_bug(device, work, turns):
    """Seconds that `work` takes on `device`, the mean of some turns."""
    start = device.clock()
    for _ in range(turns):
        device.launch(work)
    return (device.clock() - start) / turns


def check_device_seconds(answer):
    for busy, work, turns in ((0.0, 0.02, 5), (0.3, 0.02, 5), (0.1, 0.005, 1), (0.0, 0.05, 20)):
        device = Queue(busy)
        got = number(function(answer)(device, work, turns))
        where = f"work of {1e3 * work:g} ms in {turns} turns, timed as {1e3 * got:.4g} ms"
        if device.launched < turns:  # more of them: it was warmed up before
            raise Wrong(f"{where}: it was launched {device.launched} times.")
        if abs(got / work - 1) > 0.05:
            _refuse_time(got, busy, work, turns, where)
    return "the device was idle at the start and at the end, so the seconds are those of the work."


def _refuse_time(got, busy, work, turns, where):
    """Say which seconds were taken instead."""
    if close(got, Queue.LAUNCH_S, 0.01):
        raise Wrong(f"{where}: that is what a launch takes. It returns before the work is done.")
    if close(got, (busy + turns * work) / turns, 0.01):
        raise Wrong(f"{where}: the device still had {1e3 * busy:g} ms of earlier work to do when "
                    "the clock was started.")  # fmt: skip
    if close(got, turns * work, 0.05):
        raise Wrong(f"{where}: that is the time of all turns together, the mean was asked for.")
    if 0 <= got < 0.01 * work:
        raise Wrong(f"{where}: the clock was read before the work was done.")
    raise Wrong(f"{where}: what is done between the two readings of the clock?")


EXERCISES = [
    Exercise(
        "scaling_table",
        "write scaling_table(cards, rates): a list with a pair (speed-up, efficiency) for each "
        "number of cards, against the first of them; rates are what they did a second.",
        check_scaling_table,
        (
            "the speed-up of a row is its rate / the rate of the first row.",
            "a row with k times as many cards as the first is perfect with a speed-up of k.",
            "efficiency = speed-up / (cards / cards of the first row)",
        ),
        scaling_table,
    ),
    Exercise(
        "serial_part",
        "write serial_part(ranks, speedup, scaling): the part s that explains a measured speed-up, "
        'by Amdahl\'s law where scaling is "strong", by Gustafson\'s where it is "weak".',
        check_serial_part,
        (
            "strong: 1 / speedup = s + (1 - s) / p. Multiply by p.",
            "weak: speedup = s + p (1 - s). Collect what has s.",
            "strong: (p / speedup - 1) / (p - 1); weak: (p - speedup) / (p - 1)",
        ),
        serial_part,
    ),
    Exercise(
        "amdahl_on_64",
        "by Amdahl's law, with s as the DGX-1V in FP16 shows it on 8 GPUs (795.33 images a second "
        "on one, 5377.14 on eight): what is the speed-up of 64 GPUs?",
        check_amdahl_on_64,
        (
            "the speed-up on 8 GPUs is 5377.14 / 795.33.",
            's = serial_part(8, that, "strong")',
            "1 / (s + (1 - s) / 64)",
        ),
        "the speed-up on 8 is 6.761, so s = (8 / 6.761 - 1) / 7 = 0.0262; "
        "1 / (0.0262 + 0.9738 / 64) = 24.2.",
    ),
    Exercise(
        "device_seconds",
        "find the bug in device_seconds(device, work, turns), which says that every work takes the "
        "same few microseconds, and repair it.",
        check_device_seconds,
        (
            "device.launch(work) returns at once: the work is done later.",
            "device.synchronize() returns when all that was launched is done.",
            "the device may have something to do already when the clock is started.",
        ),
        device_seconds,
        given=device_seconds_with_the_bug,
    ),
]
