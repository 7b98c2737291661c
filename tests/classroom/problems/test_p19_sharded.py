"""Spans, a mean in parts, stages that fit, a batch that hides, weights that are gone: answers that
were really likely."""

import torch

from course.classroom.problems.p19_sharded import (
    as_pair,
    counted_in_the_flat_vector,
    each_cut_alone,
    gradients_of_shards,
    gradients_of_shards_with_the_bug,
    mean_of_own_part,
    one_rank_too_many_has_one_more,
    rest_at_the_end,
    smallest_stage,
    stop_included,
    weights_first,
    who_owns,
    within_tensors,
)
from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    reduce,
    reduce_scatter,
    scatter,
)
from tests.classroom.gallery import Gallery, gallery_tests

# Who owns what


def owns_stub(sizes, ranks, rank):
    """For each tensor the pair (start, stop) of its elements that `rank` owns."""
    ...


def owns_by_counting(sizes, ranks, rank):
    mine = set(torch.arange(sum(sizes)).tensor_split(ranks)[rank].tolist())
    spans, begin = [], 0
    for size in sizes:
        own = [n for n in range(size) if begin + n in mine]
        spans.append([own[0], own[-1] + 1] if own else [0, 0])
        begin += size
    return spans


def chunks_of_torch(sizes, ranks, rank):
    length = -(-sum(sizes) // ranks)
    return within_tensors(sizes, rank * length, (rank + 1) * length)


def whole_tensors(sizes, ranks, rank):
    """Every tensor belongs to the rank in whose part it begins."""
    spans, begin = [], 0
    owners = [owner for owner, part in enumerate(torch.arange(sum(sizes)).tensor_split(ranks))
              for _ in part]  # fmt: skip
    for size in sizes:
        spans.append((0, size) if owners[begin] == rank else (0, 0))
        begin += size
    return spans


def in_the_whole_vector(sizes, ranks, rank):
    part = torch.arange(sum(sizes)).tensor_split(ranks)[rank]
    return int(part[0]), int(part[-1]) + 1, ranks


def how_many(sizes, ranks, rank):
    return [stop - start for start, stop in who_owns(sizes, ranks, rank)]


def not_kept_in_order(sizes, ranks, rank):
    """Where a rank has nothing, start may lie behind stop."""
    bounds = [0, *torch.tensor([len(part) for part in torch.arange(sum(sizes)).tensor_split(ranks)])
              .cumsum(0).tolist()]  # fmt: skip
    first, last, spans, begin = bounds[rank], bounds[rank + 1], [], 0
    for size in sizes:
        spans.append((max(first - begin, 0), min(last - begin, size)))
        begin += size
    return spans


def test_empty_spans_are_compared_as_equal():
    assert as_pair((5, 5)) == as_pair([7, 3]) == as_pair((0, 0)) == (0, 0)


# The mean of one's own part


def mean_stub(comm, gradient):
    """This rank's part of the mean over ranks of gradient [n]."""
    ...


def mean_by_all_to_all(comm, gradient):
    parts = gradient.tensor_split(comm.size)
    theirs = [torch.empty_like(parts[comm.rank]) for _ in parts]
    all_to_all(comm, theirs, parts)
    return torch.stack(theirs).mean(dim=0)


def mean_of_all_and_cut(comm, gradient):
    all_reduce(comm, gradient, "mean")
    return gradient.tensor_split(comm.size)[comm.rank]


def root_then_scatter(comm, gradient):
    """Rank 0 has the mean of all, and sends the parts."""
    parts, last = gradient.tensor_split(comm.size), gradient.clone()
    reduce(comm, last, root=0)
    mine = torch.empty_like(parts[comm.rank])
    scatter(comm, mine, (last / comm.size).tensor_split(comm.size) if comm.rank == 0 else None)
    return mine


def parts_filled_up(comm, gradient):
    """All parts of one length, as a reduce-scatter of NCCL wants them."""
    length = -(-len(gradient) // comm.size)
    parts = gradient.tensor_split(comm.size)
    filled = [torch.nn.functional.pad(part, (0, length - len(part))) for part in parts]
    mine = torch.empty_like(filled[0])
    reduce_scatter(comm, mine, filled, "mean")
    return mine[: len(parts[comm.rank])]


def mean_of_all(comm, gradient):
    all_reduce(comm, gradient, "mean")
    return gradient


def sum_of_own_part(comm, gradient):
    parts = gradient.tensor_split(comm.size)
    mine = torch.empty_like(parts[comm.rank])
    reduce_scatter(comm, mine, parts)
    return mine


def own_gradient(comm, gradient):
    return gradient.tensor_split(comm.size)[comm.rank]


def part_of_the_next(comm, gradient):
    all_reduce(comm, gradient, "mean")
    return gradient.tensor_split(comm.size)[(comm.rank + 1) % comm.size]


def without_the_rest(comm, gradient):
    length = len(gradient) // comm.size
    parts = gradient[: length * comm.size].split(length) if length else [gradient[:0]] * comm.size
    mine = torch.empty_like(parts[comm.rank])
    reduce_scatter(comm, mine, parts, "mean")
    return mine


def divided_twice(comm, gradient):
    return mean_of_own_part(comm, gradient) / comm.size


def mean_not_returned(comm, gradient):
    mean_of_own_part(comm, gradient)


# The stage


def stage_stub(elements, ranks, memory_bytes, optimizer_bytes=12):
    """The lowest stage that fits, or None."""
    ...


def stage_by_table(elements, ranks, memory_bytes, optimizer_bytes=12):
    k, p = optimizer_bytes, ranks
    taken = [4 + k, 4 + k / p, 2 + (2 + k) / p, (4 + k) / p]
    fitting = [stage for stage, each in enumerate(taken) if each * elements <= memory_bytes]
    return fitting[0] if fitting else None


def always_twelve(elements, ranks, memory_bytes, optimizer_bytes=12):
    return smallest_stage(elements, ranks, memory_bytes)


def highest_stage(elements, ranks, memory_bytes, optimizer_bytes=12):
    fits = smallest_stage(elements, ranks, memory_bytes, optimizer_bytes) is not None
    return 3 if fits else None


def all_divided_at_once(elements, ranks, memory_bytes, optimizer_bytes=12):
    return 0 if elements * (4 + optimizer_bytes) / ranks <= memory_bytes else None


def three_if_nothing_fits(elements, ranks, memory_bytes, optimizer_bytes=12):
    stage = smallest_stage(elements, ranks, memory_bytes, optimizer_bytes)
    return 3 if stage is None else stage


def not_the_third(elements, ranks, memory_bytes, optimizer_bytes=12):
    stage = smallest_stage(elements, ranks, memory_bytes, optimizer_bytes)
    return None if stage == 3 else stage


def bytes_in_place_of_a_stage(elements, ranks, memory_bytes, optimizer_bytes=12):
    return elements * (4 + optimizer_bytes / ranks)


# Weights that are gone


def first_layer_spared(comm, shards, x, target):
    whole = x.new_empty(x.shape[1], x.shape[1])
    outputs, gradients = [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = outputs[-1] - target
    for number, shard in reversed([*enumerate(shards)]):
        error = error * (1 - outputs.pop() ** 2)
        mine = torch.empty_like(shard)
        reduce_scatter(comm, mine, (outputs[-1].T @ error).tensor_split(comm.size))
        gradients.insert(0, mine)
        if number:
            all_gather(comm, whole.tensor_split(comm.size), shard)
            error = error @ whole.T
    return gradients


def two_layers_kept(comm, shards, x, target):
    """The last two lie in two buffers; the first is not needed again."""
    buffers, outputs, gradients = [x.new_empty(x.shape[1], x.shape[1]) for _ in "ab"], [x], []
    for number, shard in enumerate(shards):
        all_gather(comm, buffers[number % 2].tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ buffers[number % 2]))
    error = (outputs[-1] - target) * (1 - outputs[-1] ** 2)
    for number in reversed(range(len(shards))):
        seen, whole = outputs[number], buffers[number % 2]
        gradients.insert(0, torch.empty_like(shards[number]))
        reduce_scatter(comm, gradients[0], (seen.T @ error).tensor_split(comm.size))
        if 0 < number < len(shards) - 2:
            all_gather(comm, whole.tensor_split(comm.size), shards[number])
        error = error @ whole.T * (1 - seen**2)
    return gradients


def last_layer_kept(comm, shards, x, target):
    whole = x.new_empty(x.shape[1], x.shape[1])
    outputs, gradients = [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = outputs[-1] - target
    for number, shard in reversed([*enumerate(shards)]):
        if number < len(shards) - 1:
            all_gather(comm, whole.tensor_split(comm.size), shard)
        error = error * (1 - outputs.pop() ** 2)
        mine = torch.empty_like(shard)
        reduce_scatter(comm, mine, (outputs[-1].T @ error).tensor_split(comm.size))
        gradients.insert(0, mine)
        error = error @ whole.T
    return gradients


def all_layers_kept(comm, shards, x, target, op="sum", reduce=reduce_scatter):
    wholes = [x.new_empty(x.shape[1], x.shape[1]) for _ in shards]
    outputs, gradients = [x], []
    for whole, shard in zip(wholes, shards):
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = outputs[-1] - target
    for whole, shard in zip(wholes[::-1], shards[::-1]):
        error = error * (1 - outputs.pop() ** 2)
        mine = torch.empty_like(shard)
        reduce(comm, mine, (outputs[-1].T @ error).tensor_split(comm.size), op)
        gradients.insert(0, mine)
        error = error @ whole.T
    return gradients


def in_groups_of_three(comm, shards, x, target, size=3):
    """Weights of `size` layers are whole at a time, and come twice."""
    wholes = [x.new_empty(x.shape[1], x.shape[1]) for _ in range(size)]
    outputs, gradients, last = [x], [], len(shards) - 1

    def gather(first):
        for whole, shard in zip(wholes, shards[first : first + size]):
            all_gather(comm, whole.tensor_split(comm.size), shard)

    for number in range(len(shards)):
        if number % size == 0:
            gather(number)
        outputs.append(torch.tanh(outputs[-1] @ wholes[number % size]))
    error = outputs[-1] - target
    for number, shard in reversed([*enumerate(shards)]):
        if number == last or number % size == size - 1:
            gather(number - number % size)
        error = error * (1 - outputs.pop() ** 2)
        gradients.insert(0, torch.empty_like(shard))
        reduce_scatter(comm, gradients[0], (outputs[-1].T @ error).tensor_split(comm.size))
        error = error @ wholes[number % size].T
    return gradients


def in_groups_of_four(comm, shards, x, target):
    return in_groups_of_three(comm, shards, x, target, size=4)


def in_new_memory_for_backward(comm, shards, x, target):
    whole, outputs, gradients = x.new_empty(x.shape[1], x.shape[1]), [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = (outputs[-1] - target) * (1 - outputs[-1] ** 2)
    for shard, seen in zip(reversed(shards), reversed(outputs[:-1])):
        gradients.insert(0, torch.empty_like(shard))
        reduce_scatter(comm, gradients[0], (seen.T @ error).tensor_split(comm.size))
        again = torch.empty_like(whole)
        all_gather(comm, again.tensor_split(comm.size), shard)
        error = error @ again.T * (1 - seen**2)
    return gradients


def all_gathered_again_at_once(comm, shards, x, target):
    whole = x.new_empty(x.shape[1], x.shape[1])
    outputs, gradients = [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    wholes = [torch.empty_like(whole) for _ in shards]
    for each, shard in zip(wholes, shards):
        all_gather(comm, each.tensor_split(comm.size), shard)
    error = outputs[-1] - target
    for each, shard in zip(wholes[::-1], shards[::-1]):
        error = error * (1 - outputs.pop() ** 2)
        mine = torch.empty_like(shard)
        reduce_scatter(comm, mine, (outputs[-1].T @ error).tensor_split(comm.size))
        gradients.insert(0, mine)
        error = error @ each.T
    return gradients


def always_in_new_memory(comm, shards, x, target):
    def gathered(shard):
        whole = x.new_empty(x.shape[1], x.shape[1])
        all_gather(comm, whole.tensor_split(comm.size), shard)
        return whole

    outputs, gradients = [x], []
    for shard in shards:
        outputs.append(torch.tanh(outputs[-1] @ gathered(shard)))
    error = outputs[-1] - target
    for shard in shards[::-1]:
        whole = gathered(shard)
        error = error * (1 - outputs.pop() ** 2)
        product = outputs[-1].T @ error
        mine = torch.empty_like(shard)
        reduce_scatter(comm, mine, [part.clone() for part in product.tensor_split(comm.size)])
        gradients.insert(0, mine)
        error = error @ whole.T
    return gradients


def mean_in_place_of_the_sum(comm, shards, x, target):
    return all_layers_kept(comm, shards, x, target, "mean")


def own_rows_alone(comm, shards, x, target):
    def keep(comm, mine, parts, op):
        mine.copy_(parts[comm.rank])

    return all_layers_kept(comm, shards, x, target, reduce=keep)


def all_reduced(comm, shards, x, target):
    def reduce_and_cut(comm, mine, parts, op):
        gradient = torch.cat(list(parts))
        all_reduce(comm, gradient)
        mine.copy_(gradient.tensor_split(comm.size)[comm.rank])

    for shard in shards:
        all_gather(comm, x.new_empty(x.shape[1], x.shape[1]).tensor_split(comm.size), shard)
    return all_layers_kept(comm, shards, x, target, reduce=reduce_and_cut)


def in_reverse(comm, shards, x, target):
    return gradients_of_shards(comm, shards, x, target)[::-1]


def gathers_the_layer_below(comm, shards, x, target):
    whole = x.new_empty(x.shape[1], x.shape[1])
    outputs, gradients = [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = outputs[-1] - target
    for number in reversed(range(len(shards))):
        error = error * (1 - outputs.pop() ** 2)
        mine = torch.empty_like(shards[number])
        reduce_scatter(comm, mine, (outputs[-1].T @ error).tensor_split(comm.size))
        gradients.insert(0, mine)
        all_gather(comm, whole.tensor_split(comm.size), shards[number - 1])
        error = error @ whole.T
    return gradients


def slope_forgotten(comm, shards, x, target):
    whole = x.new_empty(x.shape[1], x.shape[1])
    outputs, gradients = [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = outputs.pop() - target
    for shard in reversed(shards):
        mine = torch.empty_like(shard)
        reduce_scatter(comm, mine, (outputs.pop().T @ error).tensor_split(comm.size))
        gradients.insert(0, mine)
        all_gather(comm, whole.tensor_split(comm.size), shard)
        error = error @ whole.T
    return gradients


def takes_a_step(comm, shards, x, target):
    gradients = gradients_of_shards(comm, shards, x, target)
    for shard, gradient in zip(shards, gradients):
        shard -= 0.1 * gradient
    return gradients


def gradients_not_returned(comm, shards, x, target):
    gradients_of_shards(comm, shards, x, target)


GALLERIES = [
    Gallery("who_owns", owns_stub, [who_owns, owns_by_counting], {
        "you cut every tensor by itself": each_cut_alone,
        "from its own first element": counted_in_the_flat_vector,
        "the parts differ by one element at most": chunks_of_torch,
        "not to the last one": rest_at_the_end,
        "not the rank's any more": stop_included,
        "rank 0 alone has one more": one_rank_too_many_has_one_more,
        "where in the vector of all tensors": whole_tensors,
        "a list of pairs": in_the_whole_vector,
        "start = stop is wanted": not_kept_in_order,
        "is a pair (start, stop)": how_many,
    }),
    Gallery("mean_of_own_part", mean_stub,
            [mean_of_own_part, mean_by_all_to_all, parts_filled_up], {
        "96 bytes are sent where 64 are enough": root_then_scatter,
        "ranks receive parts that they do not keep": mean_of_all_and_cut,
        "a rank keeps its own part only": mean_of_all,
        "that is the sum over ranks": sum_of_own_part,
        "has its own gradient": own_gradient,
        "has the mean of the part of rank 1": part_of_the_next,
        "gradient.tensor_split(comm.size)[comm.rank]": without_the_rest,
        "other numbers than the mean": divided_twice,
        "should return its part": mean_not_returned,
    }),
    Gallery("smallest_stage", stage_stub, [smallest_stage, stage_by_table], {
        "stage 1 shards what the optimizer has": weights_first,
        "this optimizer has 4 bytes a weight": always_twelve,
        "which is lower": highest_stage,
        "takes 120.0 GB on each": all_divided_at_once,
        "no stage fits": three_if_nothing_fits,
        "nothing came back": not_the_third,
        "a stage is 0, 1, 2 or 3": bytes_in_place_of_a_stage,
    }),
    Gallery("tokens_to_hide", ..., [7875, "7.9e3"], {
        "a rank has its own 64th already": 8000,
        "a weight in bf16 has 2 bytes": 15750,
        "in a product and in a sum": 3937.5,
        "a rank receives all parts but its own": 125,
        "the batch of all ranks together": 504_000,
        "nothing is to be divided by 8": 63_000,
        "400 Tflop/s are": 7.875,
        "the other way round": 1 / 7875,
        "that is another number": 1000,
        "a number is wanted": "many",
    }),
    Gallery("gradients_of_shards", gradients_of_shards_with_the_bug,
            [gradients_of_shards, first_layer_spared, last_layer_kept, two_layers_kept,
             always_in_new_memory, in_new_memory_for_backward], {
        "Which weights does `whole` hold there": gathers_the_layer_below,
        "weights stay whole from forward to backward": all_layers_kept,
        "8 matrices as large as": all_gathered_again_at_once,
        "4 matrices as large as": in_groups_of_three,
        "5 matrices as large as": in_groups_of_four,
        "all rows of all ranks count": own_rows_alone,
        "has the mean over ranks": mean_in_place_of_the_sum,
        "in the reverse order": in_reverse,
        "two all-gathers and one reduce-scatter": all_reduced,
        "already the last layer has another gradient": slope_forgotten,
        "the shards themselves have changed": takes_a_step,
        "a list of gradients of the shapes": gradients_not_returned,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
