"""Micro-batches, clock cycles, activations, rows of 1F1B and stages: answers really likely."""

from course.classroom.problems.p18_pipeline import (
    clock_cycles,
    kept_after,
    pass_through_stages,
    pass_through_stages_with_the_bug,
    row_of_1f1b,
)
from course.collectives import broadcast
from course.parallel.pipeline import gpipe, one_forward_one_backward, zero_bubble
from course.parallel.pipeline.step import Step
from course.parallel.pipeline.timing import peak_live
from tests.classroom.gallery import Gallery, gallery_tests

# The clock cycles


def cycles_stub(stages, micro_batches):
    """For each clock cycle, the pairs (stage, micro-batch) that are done in it."""
    ...


def cycles_by_filling(stages, micro_batches):
    cycles = [[] for _ in range(stages + micro_batches - 1)]
    for stage in range(stages):
        for micro_batch in range(micro_batches):
            cycles[stage + micro_batch].insert(0, [stage, micro_batch])
    return tuple(cycles)


def one_at_a_time(stages, micro_batches):
    return [[(s, k)] for k in range(micro_batches) for s in range(stages)]


def turned_pairs(stages, micro_batches):
    return [[(k, s) for s, k in cycle] for cycle in clock_cycles(stages, micro_batches)]


def last_cycle_missing(stages, micro_batches):
    return clock_cycles(stages, micro_batches)[:-1]


def all_stages_at_once(stages, micro_batches):
    return [[(s, k) for s in range(stages)] for k in range(micro_batches)]


def stage_by_stage(stages, micro_batches):
    return [[(s, k) for k in range(micro_batches)] for s in range(stages)]


def last_micro_batch_first(stages, micro_batches):
    turned = range(micro_batches)[::-1]
    return [[(s, turned[k]) for s, k in cycle] for cycle in clock_cycles(stages, micro_batches)]


def without_bounds(stages, micro_batches):
    return [[(s, k - s) for s in range(stages)] for k in range(stages + micro_batches - 1)]


def twice_in_a_row(stages, micro_batches):
    return [cycle for cycle in clock_cycles(stages, micro_batches) for _ in range(2)]


def a_flat_list(stages, micro_batches):
    return [pair for cycle in clock_cycles(stages, micro_batches) for pair in cycle]


# The most that is kept


def peak_stub(row):
    """How many micro-batches a rank keeps at most."""
    ...


def peak_by_the_package(row):
    return peak_live(map(Step.of, row.split(",")))


def i_frees(row):
    return max(kept_after(row, "BI"))


def only_b_frees(row):
    return max(kept_after(row, "B"))


def all_forwards(row):
    return row.count("F")


def at_the_end(row):
    return kept_after(row, "BW")[-1]


def before_each_forward(row):
    return peak_by_the_package(row) - 1


def micro_batches_as_a_set(row):
    kept, most = set(), 0
    for word in row.split(","):
        _, kind, number = word.partition(word.strip("0123456789"))
        if kind == "F":
            kept.add(number)
        elif kind in ("B", "W"):
            kept.discard(number)
        most = max(most, len(kept))
    return most


def longest_run_of_forwards(row):
    kinds = "".join(Step.of(word).kind for word in row.split(","))
    return max(map(len, kinds.replace("B", " ").replace("I", " ").replace("W", " ").split()))


def as_a_sentence(row):
    return "three"


# A row of 1F1B


def row_stub(rank, ranks, micro_batches):
    """The row of a rank in 1F1B."""
    ...


def row_of_the_package(rank, ranks, micro_batches):
    return ",".join(map(str, one_forward_one_backward(ranks, micro_batches).rows[rank]))


def row_with_blanks(rank, ranks, micro_batches):
    return row_of_the_package(rank, ranks, micro_batches).replace(",", " ") + "\n"


def gpipe_row(rank, ranks, micro_batches):
    return ",".join(map(str, gpipe(ranks, micro_batches).rows[rank]))


def nothing_ahead(rank, ranks, micro_batches):
    return ",".join(f"{rank}F{k},{rank}B{k}" for k in range(micro_batches))


def first_rank_is_the_last(rank, ranks, micro_batches):
    row = row_of_1f1b(ranks - rank - 1, ranks, micro_batches).split(",")
    return ",".join(f"{rank}{word[1:]}" for word in row)


def backward_left_out(rank, ranks, micro_batches):
    return row_of_1f1b(rank, ranks, micro_batches).rpartition(",")[0]


def backward_first(rank, ranks, micro_batches):
    return ",".join(f"{rank}B{k},{rank}F{k}" for k in range(micro_batches))


def all_on_stage_0(rank, ranks, micro_batches):
    return row_of_1f1b(0, ranks, micro_batches)


def a_list_of_steps(rank, ranks, micro_batches):
    return row_of_1f1b(rank, ranks, micro_batches).split(",")


def row_of_halves(rank, ranks, micro_batches):
    return ",".join(map(str, zero_bubble(ranks, micro_batches).rows[rank]))


def one_micro_batch_more(rank, ranks, micro_batches):
    return row_of_1f1b(rank, ranks, micro_batches + 1)


def one_micro_batch_less(rank, ranks, micro_batches):
    return row_of_1f1b(rank, ranks, micro_batches - 1) or f"{rank}F0"


def past_the_last_micro_batch(rank, ranks, micro_batches):
    ahead = ranks - rank - 1
    steps = [f"{rank}F{k}" for k in range(ahead)]
    steps += [f"{rank}F{k + ahead},{rank}B{k}" for k in range(micro_batches)]
    return ",".join(steps)


# The stages


def stages_of_ceil(comm, layers, x):
    size = -(-len(layers) // comm.size)
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    for layer in layers[comm.rank * size : (comm.rank + 1) * size]:
        x = layer(x)
    if comm.rank < comm.size - 1:
        comm.send(x, comm.rank + 1)
    return x if comm.rank == comm.size - 1 else None


def passed(comm, layers, x, first, end):
    """Layers first to end - 1, between what comes and what goes."""
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    for layer in layers[first:end]:
        x = layer(x)
    if comm.rank < comm.size - 1:
        comm.send(x, comm.rank + 1)
    return x


def rest_for_the_last(comm, layers, x):
    size = len(layers) // comm.size
    end = len(layers) if comm.rank == comm.size - 1 else (comm.rank + 1) * size
    return passed(comm, layers, x, comm.rank * size, end)


def rounded(comm, layers, x):
    size = round(len(layers) / comm.size)
    end = len(layers) if comm.rank == comm.size - 1 else (comm.rank + 1) * size
    return passed(comm, layers, x, comm.rank * size, end)


def stops_before_the_last(comm, layers, x):
    first, end = (rank * len(layers) // comm.size for rank in (comm.rank, comm.rank + 1))
    return passed(comm, layers, x, first, min(end, len(layers) - 1))


def one_layer_overlaps(comm, layers, x):
    first, end = (rank * len(layers) // comm.size for rank in (comm.rank, comm.rank + 1))
    return passed(comm, layers, x, first, end + 1)


def last_layers_first(comm, layers, x):
    first, end = (rank * len(layers) // comm.size for rank in (comm.rank, comm.rank + 1))
    return passed(comm, layers, x, len(layers) - end, len(layers) - first)


def nothing_received(comm, layers, x):
    for layer in layers[comm.rank :: comm.size]:
        x = layer(x)
    return x


def nothing_returned(comm, layers, x):
    pass_through_stages(comm, layers, x)


def to_all_behind(comm, layers, x):
    for rank in range(comm.rank):
        comm.recv(x, rank)
    first, end = (rank * len(layers) // comm.size for rank in (comm.rank, comm.rank + 1))
    for layer in layers[first:end]:
        x = layer(x)
    for rank in range(comm.rank + 1, comm.size):
        comm.send(x, rank)
    return x


def by_broadcasts(comm, layers, x):
    for root in range(comm.size):
        if root == comm.rank:
            first, end = (rank * len(layers) // comm.size for rank in (root, root + 1))
            for layer in layers[first:end]:
                x = layer(x)
        broadcast(comm, x, root)
    return x


GALLERIES = [
    Gallery("enough_micro_batches", ..., [63, "63", 63.0], {
        "idle time as a share of the working time": 70,
        "p − 1 cycles are idle, not p": 72,
        "is a rule of thumb": 32,
        "idle for half of the time": 7,
        "in whole numbers": 62.5,
        "counted in whole": float("inf"),
        "with 62 micro-batches they are idle for 10.14%": 62,
        "fewer are enough as well": 64,
        "a number is wanted": "many",
    }),
    Gallery("clock_cycles", cycles_stub, [clock_cycles, cycles_by_filling], {
        "12 cycles are used where 6 are enough": one_at_a_time,
        "the pairs are in the wrong order": turned_pairs,
        "stage 2 never does micro-batch 3": last_cycle_missing,
        "has it ready only after cycle 0": all_stages_at_once,
        "does 4 micro-batches in cycle 0": stage_by_stage,
        "there is no stage 1 with a micro-batch -1": without_bounds,
        "more than once": twice_in_a_row,
        "in the order of their numbers": last_micro_batch_first,
        "wanted is a list of cycles": a_flat_list,
    }),
    Gallery("peak_activations", peak_stub, [peak_by_the_package], {
        "frees nothing": i_frees,
        "a W frees what its forward has kept": only_b_frees,
        "how many forwards there are": all_forwards,
        "what is kept at the end": at_the_end,
        "one too few": before_each_forward,
        "once for every stage that keeps it": micro_batches_as_a_set,
        "go through the row and count": longest_run_of_forwards,
        "a number is wanted": as_a_sentence,
    }),
    Gallery("row_of_1f1b", row_stub, [row_of_1f1b, row_of_the_package, row_with_blanks], {
        "it does too many forwards ahead": gpipe_row,
        "the later ranks wait for forwards": nothing_ahead,
        "this schedule is a deadlock": first_rank_is_the_last,
        "is missing on rank": backward_left_out,
        "which stands behind it": backward_first,
        "rank 1 does stage 1 alone": all_on_stage_0,
        "a row is one line of text": a_list_of_steps,
        "belong to another schedule": row_of_halves,
        "rank 0 does 0F3, and": one_micro_batch_more,
        "the 3 micro-batches are 0 to 2": past_the_last_micro_batch,
        "the table has 2 micro-batches": one_micro_batch_less,
    }),
    Gallery("pass_through_stages", pass_through_stages_with_the_bug,
            [pass_through_stages, stages_of_ceil], {
        "does 4 layers where 3 are enough": rest_for_the_last,
        "10 layers on 4 ranks: rank 3 does 4": rounded,
        "is done by no rank": stops_before_the_last,
        "is done more than once": one_layer_overlaps,
        "which rank has the first ones": last_layers_first,
        "no rank has sent a message": nothing_received,
        "the last rank should return": nothing_returned,
        "one message from each rank to the next is enough": to_all_behind,
        "broadcast does the work for you": by_broadcasts,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
