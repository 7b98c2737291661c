"""The schedules that have a name."""

from course.comm.counts import required_count
from course.parallel.pipeline.schedule import Schedule
from course.parallel.pipeline.step import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Step


def gpipe(ranks: int, micro_batches: int, takes=None) -> Schedule:
    """All forwards, then all backwards.

    Bubble (p - 1)/(m + p - 1); m micro-batches are live.  Source: Huang et al. 2018.
    """
    _check(ranks=ranks, micro_batches=micro_batches)
    rows = [[Step(rank, kind, number) for kind in (FORWARD, BACKWARD)
             for number in range(micro_batches)] for rank in range(ranks)]  # fmt: skip
    return Schedule(rows, takes)


def one_forward_one_backward(ranks: int, micro_batches: int, takes=None) -> Schedule:
    """A backward as soon as there can be one: the bubble of `gpipe`, but at most p - rank live.

    Source: Narayanan et al. 2019 (PipeDream, here with a flush), 2021.
    """
    _check(ranks=ranks, micro_batches=micro_batches)
    rows = []
    for rank in range(ranks):
        forwards = [Step(rank, FORWARD, number) for number in range(micro_batches)]
        backwards = [step.other(kind=BACKWARD) for step in forwards]
        rows.append(_one_for_one(forwards, backwards, ranks - rank - 1))
    return Schedule(rows, takes)


def _one_for_one(forwards, backwards, warm_up) -> list[Step]:
    """So many forwards; then one forward and one backward in turn; then backwards alone."""
    warm_up = min(warm_up, len(forwards))
    pairs = zip(forwards[warm_up:], backwards)
    return [*forwards[:warm_up], *(step for pair in pairs for step in pair),
            *backwards[len(forwards) - warm_up :]]  # fmt: skip


def interleaved(ranks: int, micro_batches: int, chunks: int, takes=None) -> Schedule:
    """1F1B where rank r has the stages r, r + p, r + 2p, ...: `chunks` of them.

    Bubble (p - 1)/(chunks m) of the ideal time, for `chunks` times as many messages.
    Raises ValueError unless micro-batches can be cut into equal groups of p or a little more.
    Source: Narayanan et al. 2021, section 2.2.
    """
    _check(ranks=ranks, micro_batches=micro_batches, chunks=chunks)
    rounds = max(1, micro_batches // ranks)
    if micro_batches % rounds:
        raise ValueError(f"interleaved micro-batches go in {rounds} equal groups of {ranks} or "
                         f"more, and {micro_batches} cannot")  # fmt: skip
    group, total, rows = micro_batches // rounds, micro_batches * chunks, []
    for rank in range(ranks):
        forwards = [_in_groups(rank, FORWARD, k, ranks, group, chunks) for k in range(total)]
        backwards = [_in_groups(rank, BACKWARD, k, ranks, group, chunks) for k in range(total)]
        warm_up = 2 * (ranks - rank - 1) + (chunks - 1) * group
        rows.append(_one_for_one(forwards, backwards, warm_up))
    return Schedule(rows, takes)


def _in_groups(rank, kind, k, ranks, group, chunks) -> Step:
    """The k-th forward or backward of a rank: a group through one chunk, then through the next."""
    block, within = divmod(k, group)
    round_, chunk = divmod(block, chunks)
    if kind == BACKWARD:
        chunk = chunks - 1 - chunk
    return Step(chunk * ranks + rank, kind, round_ * group + within)


def zero_bubble(ranks: int, micro_batches: int, lead: int = 1, takes=None) -> Schedule:
    """The gradient of weights, for which nobody waits, is put off into what would be a bubble.

    A rank does `lead` (p - 1 - rank) forwards ahead.  1 is ZB-H1: p micro-batches are live, a rank
    is idle for (p - 1)(TF + TI - TW) between its first step and its last.  2 is ZB-H2: 2p - 1 are
    live, and a rank is idle for (p - 1)(TF + TI - 2 TW), if there are 2p - 1 micro-batches.
    Source: Qi et al. 2023, section 2.
    """
    _check(ranks=ranks, micro_batches=micro_batches, lead=lead)
    rows = []
    for rank in range(ranks):
        forwards = [Step(rank, FORWARD, number) for number in range(micro_batches)]
        inputs = [step.other(kind=INPUT_GRADIENT) for step in forwards]
        weights = [step.other(kind=WEIGHT_GRADIENT) for step in forwards]
        row = _one_for_one(forwards, inputs, lead * (ranks - rank - 1))
        rows.append(_put_off(row, weights, late=lead * rank))
    return Schedule(rows, takes)


def _put_off(row, weights, late) -> list[Step]:
    """`row` with a W behind each I, always the first that is left, but for the first `late` Is."""
    filled, weights = [], list(weights)
    for step in row:
        filled.append(step)
        if step.kind == INPUT_GRADIENT and step.micro_batch >= late:
            filled.append(weights.pop(0))
    return filled + weights


def _check(**counts):
    for name, count in counts.items():
        required_count(count, name)
