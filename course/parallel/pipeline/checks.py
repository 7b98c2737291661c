"""Whether a table can run: nothing missing, doubled or too early, no rank that waits for ever."""

from course.comm.errors import listed
from course.parallel.pipeline.step import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Step

HALVES = INPUT_GRADIENT + WEIGHT_GRADIENT


def check_complete(rows, stages: int, micro_batches: int):
    """Every stage does one forward and one backward, or both its halves, of each micro-batch.

    Raises ValueError that names the step that is missing, done twice, or on two ranks.
    """
    places = {}
    for rank, row in enumerate(rows):
        for step in row:
            if step in places:
                both = {places[step], rank}
                raise ValueError(f"each step is done once: {step} is twice on {listed(both)}")
            places[step] = rank
    for stage in range(stages):
        ranks = {rank for step, rank in places.items() if step.stage == stage}
        if len(ranks) > 1:
            raise ValueError(f"a stage is on one rank: {stage} is on {listed(ranks)}")
        for micro_batch in range(micro_batches):
            found = "".join(k for k in "FBIW" if Step(stage, k, micro_batch) in places)
            _check_kinds(found, stage, micro_batch, ranks)


def _check_kinds(found, stage, micro_batch, ranks):
    if found in (FORWARD + BACKWARD, FORWARD + HALVES):
        return
    where = listed(ranks) if ranks else "no rank"
    if BACKWARD in found and set(found) & set(HALVES):
        rule = "B is a whole backward, I and W are its halves"
        raise ValueError(f"{rule}: stage {stage} on {where} does {', '.join(found)} of "
                         f"micro-batch {micro_batch}")  # fmt: skip
    split = set(found) & set(HALVES)
    missing = next(k for k in FORWARD + (HALVES if split else BACKWARD) if k not in found)
    raise ValueError(f"every stage does every micro-batch forward and backward: "
                     f"{Step(stage, missing, micro_batch)} is missing on {where}")  # fmt: skip


def dry_run(rows, needs) -> list[Step]:
    """All steps in an order in which they can be done, if messages wait for whoever needs them.

    `needs(step)`: the steps before it.  Raises ValueError for a step that stands before what its
    own rank does for it, and for a deadlock, with what each rank waits for.
    """
    _check_order(rows, needs)
    order, done, position = [], set(), [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while position[rank] < len(row) and done.issuperset(needs(row[position[rank]])):
                order.append(row[position[rank]])
                done.add(order[-1])
                position[rank] += 1
                moved = True
    stuck = {rank: row[at] for rank, (row, at) in enumerate(zip(rows, position)) if at < len(row)}
    if stuck:
        told = [f"rank {rank} waits in {step} for {_unmet(step, needs, done)}"
                for rank, step in stuck.items()]  # fmt: skip
        raise ValueError(f"this schedule is a deadlock: {'; '.join(told)}")
    return order


def _check_order(rows, needs):
    for rank, row in enumerate(rows):
        at = {step: number for number, step in enumerate(row)}
        for step in row:
            late = [other for other in needs(step) if at.get(other, -1) > at[step]]
            if late:
                raise ValueError(f"rank {rank}: {step} needs {late[0]}, which stands behind it")


def _unmet(step, needs, done) -> str:
    return ", ".join(str(other) for other in needs(step) if other not in done)
