"""Exercises of notebook 18: how many micro-batches, the table of clock cycles, the activations of a
row, a row of 1F1B that is executed, layers that no stage has."""

import torch
from torch import nn

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close, compare
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong
from course.comm.errors import listed
from course.learning.training.digits import digit_net
from course.parallel.pipeline import (
    Pipeline,
    Schedule,
    gpipe,
    interleaved,
    one_forward_one_backward,
    simulate,
    zero_bubble,
)
from course.parallel.pipeline.step import BACKWARD, FORWARD, Step
from course.parallel.pipeline.timing import peak_live

STAGES, IDLE_SHARE = 8, 0.1
WIDTH, ROWS = 6, 9  # neurons of a layer, rows of a batch
UNEVEN = "0F0,0F1,0F2,0B0,0F3,0F4,0B1,0F5,0F6,0B2,0B3,0B4,0B5,0B6"


def check_enough_micro_batches(answer):
    got, least = number(answer), 9 * (STAGES - 1)
    slips = {
        70: "that is for (p − 1)/m, idle time as a share of the working time: all time was meant.",
        72: "p − 1 cycles are idle, not p.",
        32: "four micro-batches for each stage is a rule of thumb: it leaves 18 % idle.",
        7: "with m = p − 1 the ranks are idle for half of the time.",
    }
    if got in slips:
        raise Wrong(slips[got])
    if not (got >= 1 and got % 1 == 0):
        raise Wrong("micro-batches are counted in whole numbers, from 1.")
    if got < least:
        share = (STAGES - 1) / (got + STAGES - 1)
        raise Wrong(f"not enough: with {got:.0f} micro-batches they are idle for {share:.2%}.")
    if got > least:
        raise Wrong("that is enough, but fewer are enough as well.")
    return "7/(63 + 7) is a tenth: nine micro-batches for each of the other stages."


def clock_cycles(stages, micro_batches):
    """For each clock cycle of the forward pass, the pairs (stage, micro-batch) that are done."""
    cycles = range(micro_batches + stages - 1)
    return [[(stage, cycle - stage) for stage in range(stages)
             if 0 <= cycle - stage < micro_batches] for cycle in cycles]  # fmt: skip


def check_clock_cycles(answer):
    for stages, micro_batches in ((3, 4), (1, 3), (4, 1), (4, 2), (2, 6)):
        cycles = as_cycles(function(answer)(stages, micro_batches))
        where = f"with {stages} stages and {micro_batches} micro-batches"
        check_pairs(where, cycles, stages, micro_batches)
        check_in_turn(where, cycles)
        least = micro_batches + stages - 1
        if len(cycles) > least:
            raise Wrong(f"{where}, {len(cycles)} cycles are used where {least} are enough: all "
                        "stages can work in one cycle, each on another micro-batch.")  # fmt: skip
        if (0, 0) not in cycles[0]:
            raise Wrong(f"{where}, stage 0 begins with another micro-batch than 0: they follow one "
                        "another in the order of their numbers.")  # fmt: skip
    return "m + p − 1 cycles: a stage works in m of them, and is idle in p − 1."


def as_cycles(cycles) -> list:
    """The cycles as lists of pairs.  Raises Wrong where they are none."""
    try:
        return [[(int(stage), int(micro_batch)) for stage, micro_batch in each] for each in cycles]
    except (TypeError, ValueError):
        raise Wrong("wanted is a list of cycles, and a cycle is a list of pairs (stage, "
                    "micro-batch).") from None  # fmt: skip


def check_pairs(where, cycles, stages, micro_batches):
    """Raises Wrong unless each pair is there once, and a stage does one thing in a cycle."""
    wanted = {(stage, k) for stage in range(stages) for k in range(micro_batches)}
    found = [pair for cycle in cycles for pair in cycle]
    if set(found) != wanted and {(b, a) for a, b in found} == wanted:
        raise Wrong(f"{where}, the pairs are in the wrong order: (stage, micro-batch).")
    for stage, k in sorted(wanted - set(found)):
        raise Wrong(f"{where}, stage {stage} never does micro-batch {k}.")
    for stage, k in found:
        if (stage, k) not in wanted:
            raise Wrong(f"{where}, there is no stage {stage} with a micro-batch {k}.")
        if found.count((stage, k)) > 1:
            raise Wrong(f"{where}, stage {stage} does micro-batch {k} more than once.")
    for turn, cycle in enumerate(cycles):
        at_work = [stage for stage, _ in cycle]
        for stage in at_work:
            if at_work.count(stage) > 1:
                raise Wrong(f"{where}, stage {stage} does {at_work.count(stage)} micro-batches in "
                            f"cycle {turn}: it can do one.")  # fmt: skip


def check_in_turn(where, cycles):
    """Raises Wrong where a stage works on what the stage before it has not yet done."""
    cycle_of = {pair: cycle for cycle, pairs in enumerate(cycles) for pair in pairs}
    for (stage, k), cycle in sorted(cycle_of.items()):
        before = cycle_of[stage - 1, k] if stage else -1
        if cycle <= before:
            raise Wrong(
                f"{where}, stage {stage} does micro-batch {k} in cycle {cycle}, and stage "
                f"{stage - 1} has it ready only after cycle {before}."
            )


def peak_activations(row):
    """How many micro-batches a rank keeps at most, whose row is a text such as 0F0,0F1,0B0,0B1."""
    kept = most = 0
    for step in row.split(","):
        kind = step.strip("0123456789")
        if kind == "F":
            kept += 1
        elif kind in ("B", "W"):
            kept -= 1
        most = max(most, kept)
    return most


def kept_after(row, ends) -> list[int]:
    """How many are kept after each step, if steps of the kinds `ends` free one."""
    kept, found = 0, []
    for step in map(Step.of, row.split(",")):
        kept += (step.kind == FORWARD) - (step.kind in ends)
        found.append(kept)
    return found


def of_micro_batches_alone(row) -> int:
    """The most, if a micro-batch counted once, whichever stages of the rank keep it."""
    kept, most = set(), 0
    for step in map(Step.of, row.split(",")):
        if step.kind == FORWARD:
            kept.add(step.micro_batch)
        elif step.kind in "BW":
            kept.discard(step.micro_batch)
        most = max(most, len(kept))
    return most


def check_peak_activations(answer):
    tables = [(gpipe(2, 3), 0), (one_forward_one_backward(4, 12), 1), (gpipe(1, 1), 0),
              (one_forward_one_backward(4, 2), 0), (interleaved(2, 6, 2), 1),
              (zero_bubble(4, 14), 3), (zero_bubble(4, 14, 2), 0)]  # fmt: skip
    cases = [(",".join(map(str, table.rows[rank])),) for table, rank in tables]
    cases.insert(2, (UNEVEN,))

    def asked(row):
        return torch.tensor(number(function(answer)(row)))

    def right(row):
        return torch.tensor(float(peak_live(map(Step.of, row.split(",")))))

    def slip(value):
        return lambda row: torch.tensor(float(value(row)))

    slips = [
        (slip(of_micro_batches_alone), "a rank with two stages keeps the activations of each: a "
         "micro-batch counts once for every stage that keeps it."),
        (slip(lambda row: max(kept_after(row, "BI"))),
         "I, the gradient of the input, frees nothing: W still needs what the forward has kept."),
        (slip(lambda row: max(kept_after(row, "B"))),
         "a W frees what its forward has kept, as a B does."),
        (slip(lambda row: row.count("F")),
         "that is how many forwards there are: a backward frees what its forward has kept."),
        (slip(lambda row: kept_after(row, "BW")[-1]),
         "that is what is kept at the end: the most on the way was asked for."),
        (slip(lambda row: peak_live(map(Step.of, row.split(","))) - 1),
         "one too few: the forward that is being done keeps its own."),
    ]  # fmt: skip
    steps = "go through the row and count: one more at each F, one less at each B or W."
    compare(asked, right, cases, slips, otherwise=steps, shape_is="the most")
    return "right for GPipe, 1F1B, interleaved and zero-bubble rows."


def row_of_1f1b(rank, ranks, micro_batches):
    """The row of `rank` in a table of 1F1B, as a text such as 0F0,0F1,0B0,0B1."""
    ahead = min(ranks - rank - 1, micro_batches)
    steps = [f"{rank}F{k}" for k in range(ahead)]
    for k in range(micro_batches):
        if ahead + k < micro_batches:
            steps.append(f"{rank}F{ahead + k}")
        steps.append(f"{rank}B{k}")
    return ",".join(steps)


def check_row_of_1f1b(answer):
    for ranks, micro_batches in ((2, 3), (4, 8), (1, 4), (4, 2), (3, 5)):
        where = f"with {ranks} ranks and {micro_batches} micro-batches"
        rows = [function(answer)(rank, ranks, micro_batches) for rank in range(ranks)]
        schedule = as_schedule(where, rows, micro_batches)
        check_price(where, simulate(schedule),
                    simulate(one_forward_one_backward(ranks, micro_batches)))  # fmt: skip
    outcomes, _ = on_ranks(use_schedule, 3, str(schedule))
    for rank, (right, kept) in enumerate(outcomes):
        if not right:
            raise Wrong(f"rank {rank} of 3 has another gradient than one process.")
        if kept > 3 - rank:
            raise Wrong(f"rank {rank} of 3 has kept {kept} micro-batches.")
    return "it ran on 3 ranks: the gradient of one process, and no more kept than p − rank."


def as_schedule(where, rows, micro_batches):
    """The table of these rows.  Raises Wrong, with the rule that it breaks, where it cannot run."""
    for rank, row in enumerate(rows):
        if not isinstance(row, str) or "\n" in row.strip():
            raise Wrong(f"a row is one line of text such as 0F0,0F1,0B0,0B1, not {row!r:.40}.")
        if strange := [word for word in words(row) if not word.startswith(f"{rank}")]:
            raise Wrong(f"{where}, rank {rank} does stage {rank} alone, and its row has "
                        f"{strange[0]!r}.")  # fmt: skip
    try:
        table = [list(map(Step.of, words(row))) for row in rows]
        check_numbers(where, table, micro_batches)
        schedule = Schedule(table)
    except ValueError as refused:
        raise Wrong(f"{where}: {refused}.") from None
    if schedule.micro_batches != micro_batches:
        raise Wrong(f"{where}, the table has {schedule.micro_batches} micro-batches.")
    if {step.kind for step in schedule.order} != {FORWARD, BACKWARD}:
        raise Wrong("1F1B has whole backwards, B: I and W belong to another schedule.")
    return schedule


def words(row: str) -> list[str]:
    """The steps of a row, with commas or blanks between them, as in the tables of the notebook."""
    return row.replace(",", " ").split()


def check_numbers(where, table, micro_batches):
    """Raises Wrong for a micro-batch that there is not."""
    for rank, row in enumerate(table):
        if beyond := [step for step in row if step.micro_batch >= micro_batches]:
            raise Wrong(f"{where}, rank {rank} does {beyond[0]}, and the {micro_batches} "
                        f"micro-batches are 0 to {micro_batches - 1}.")  # fmt: skip


def check_price(where, got, least):
    """Raises Wrong for a table that keeps more, or takes longer, than 1F1B."""
    for rank, (mine, enough) in enumerate(zip(got.peak_live, least.peak_live)):
        if mine > enough:
            raise Wrong(
                f"{where}, rank {rank} keeps {mine} micro-batches where {enough} are enough: it "
                "does too many forwards ahead."
            )
    if got.seconds > least.seconds + 1e-9:
        raise Wrong(
            f"{where}, the table takes {got.seconds:g} units of time where {least.seconds:g} are "
            "enough: the later ranks wait for forwards."
        )


def use_schedule(comm, text):
    """Whether this rank's gradients are those of one process, and the micro-batches it kept."""
    schedule, loss = Schedule.of(text), nn.functional.cross_entropy
    net = digit_net(0, [WIDTH] * (comm.size + 1)).double()
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    y = torch.arange(ROWS) % WIDTH
    parts = [net[i : i + 2] for i in range(0, 2 * comm.size, 2)]
    pipeline = Pipeline(parts, comm, schedule, loss)
    pipeline.step(x, target=y)
    mine = [p.grad.clone() for p in parts[comm.rank].parameters()]
    net.zero_grad()
    loss(net(x), y).backward()
    right = [p.grad for p in parts[comm.rank].parameters()]
    return all(close(a, b, 1e-9) for a, b in zip(mine, right)), pipeline.peak_live


def pass_through_stages(comm, layers, x):
    """What all layers give for x, one after another, on the last rank; a rank does some of them."""
    first, end = (rank * len(layers) // comm.size for rank in (comm.rank, comm.rank + 1))
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    for layer in layers[first:end]:
        x = layer(x)
    if comm.rank < comm.size - 1:
        comm.send(x, comm.rank + 1)
    return x


def pass_through_stages_with_the_bug(comm, layers, x):
    """What all layers give for x, one after another, on the last rank; a rank does some of them."""
    size = len(layers) // comm.size
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    for layer in layers[comm.rank * size : (comm.rank + 1) * size]:
        x = layer(x)
    if comm.rank < comm.size - 1:
        comm.send(x, comm.rank + 1)
    return x


def use_stages(comm, answer, count):
    """What the answer gives, what is right, and which layers this rank has done."""
    generator, done = torch.Generator().manual_seed(count), []
    weights = torch.randn(count, WIDTH, WIDTH, generator=generator).double()

    def layer(k):
        def apply(x):
            done.append(k)
            return torch.tanh(weights[k] @ x)

        return apply

    x = torch.ones(WIDTH).double()
    got, right = answer(comm, [layer(k) for k in range(count)], x.clone()), x
    for weight in weights:
        right = torch.tanh(weight @ right)
    return got, right, done


def check_pass_through_stages(answer):
    for ranks, count in ((3, 6), (3, 7), (4, 10), (1, 3), (2, 5), (4, 3)):
        outcomes, trace = on_ranks(use_stages, ranks, function(answer), count)
        where = f"{count} layers on {ranks} ranks"
        check_shares(where, [done for *_, done in outcomes], count)
        only_messages(trace, answer)
        got, right, _ = outcomes[-1]
        if not isinstance(got, torch.Tensor) or got.shape != right.shape:
            raise Wrong(f"{where}: the last rank should return what the last layer gives.")
        if not close(got, right):
            raise Wrong(f"{where}: all layers are done, but not one after another: which rank has "
                        "the first ones, and what does each begin with?")  # fmt: skip
        if max(trace.sent_messages, default=0) > 1:
            raise Wrong(f"{where}: one message from each rank to the next is enough.")
    return "every layer has one stage, and no stage has more layers than it must."


def check_shares(where, done, count):
    """Raises Wrong unless each layer is done once, and by nobody more of them than needed."""
    for layer in range(count):
        ranks = [rank for rank, layers in enumerate(done) if layer in layers]
        if not ranks:
            raise Wrong(f"{where}: layer {layer} is done by no rank, and nothing says so, since "
                        "all layers have one width.")  # fmt: skip
        if len(ranks) > 1 or done[ranks[0]].count(layer) > 1:
            raise Wrong(f"{where}: layer {layer} is done more than once, on {listed(set(ranks))}.")
    enough = -(-count // len(done))
    for rank, layers in enumerate(done):
        if len(layers) > enough:
            raise Wrong(f"{where}: rank {rank} does {len(layers)} layers "
                        f"where {enough} are enough, and all others wait for it.")  # fmt: skip


EXERCISES = [
    Exercise(
        "enough_micro_batches",
        "a pipeline has 8 stages that take equally long: how many micro-batches at least, so that "
        "its ranks are idle for no more than a tenth of the time?",
        check_enough_micro_batches,
        (
            "of m + p − 1 cycles a rank is idle in p − 1.",
            "(p − 1)/(m + p − 1) ≤ 0.1, with p = 8.",
        ),
        "7 / (m + 7) ≤ 0.1, so m + 7 ≥ 70: at least 63 micro-batches.",
    ),
    Exercise(
        "clock_cycles",
        "write clock_cycles(stages, micro_batches): a list of the cycles of the forward pass, each "
        "a list of the pairs (stage, micro-batch) that are done in it; in as few cycles as can be.",
        check_clock_cycles,
        (
            "in cycle 0 stage 0 does micro-batch 0; in cycle 1 stage 0 does 1, and stage 1 does 0.",
            "stage + micro-batch is the number of the cycle.",
            "there are micro_batches + stages - 1 cycles; leave out what does not exist.",
        ),
        clock_cycles,
    ),
    Exercise(
        "peak_activations",
        "write peak_activations(row): of how many micro-batches a rank keeps the activations at "
        "most; the row is a text such as 0F0,0F1,0B0,0B1, and may have I and W in place of B.",
        check_peak_activations,
        (
            "walk through row.split(','), with a counter.",
            "an F adds one; a B takes one away, or the W of the two halves I and W.",
            "remember the largest value that the counter has had.",
        ),
        peak_activations,
    ),
    Exercise(
        "row_of_1f1b",
        "write row_of_1f1b(rank, ranks, micro_batches): the row of a rank in 1F1B, as a text such "
        "as 0F0,0F1,0B0,0B1; the table is simulated, and then trains a network on 3 ranks.",
        check_row_of_1f1b,
        (
            "the last rank does 0F, 0B, 1F, 1B, ...: nothing ahead.  The one before it does one "
            "forward ahead.",
            "ranks - rank - 1 forwards ahead, but never more than there are micro-batches.",
            "then one forward and one backward in turn; at the end the backwards that are left.",
        ),
        row_of_1f1b,
    ),
    Exercise(
        "pass_through_stages",
        "find the bug in pass_through_stages(comm, layers, x), which is right for 6 layers on 3 "
        "ranks, and repair it: for any number of layers, the last rank returns what they give one "
        "after another, and no rank does more of them than layers / ranks, rounded up.",
        check_pass_through_stages,
        (
            "which layers does each of 3 ranks do, if there are 7?",
            "rank * len(layers) // comm.size is where the layers of a rank begin.",
        ),
        pass_through_stages,
        given=pass_through_stages_with_the_bug,
    ),
]
