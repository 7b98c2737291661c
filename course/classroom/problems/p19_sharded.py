"""Exercises of notebook 19: who owns what of uneven shards, a reduce-scatter in place of an
all-reduce, the stage that fits, the batch that hides a gather, weights freed before backward."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close, compare
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_gather, reduce_scatter

FLOPS_PER_S, BYTES_PER_S, WEIGHT_BYTES, RANKS = 400e12, 50e9, 2, 64  # of the batch that hides
MANY, MOST = 6, 3  # layers; matrices at once: a layer's weights, those before it, a product
WIDTH = 7  # neurons of a layer of shards, which no number of ranks above 1 divides
GB = 1e9


def who_owns(sizes, ranks, rank):
    """[(start, stop), ...]: of each of the tensors side by side, the elements that `rank` owns."""
    total, spans, begin = sum(sizes), [], 0
    first = rank * (total // ranks) + min(rank, total % ranks)
    last = first + total // ranks + (rank < total % ranks)
    for size in sizes:
        spans.append((min(max(first - begin, 0), size), min(max(last - begin, 0), size)))
        begin += size
    return spans


def within_tensors(sizes, first, last):
    """The spans in each tensor of the elements first to last - 1 of all of them side by side."""
    spans, begin = [], 0
    for size in sizes:
        spans.append((min(max(first - begin, 0), size), min(max(last - begin, 0), size)))
        begin += size
    return spans


def each_cut_alone(sizes, ranks, rank):
    return [who_owns((size,), ranks, rank)[0] for size in sizes]


def counted_in_the_flat_vector(sizes, ranks, rank):
    begins = [sum(sizes[:number]) for number in range(len(sizes))]
    return [(start + begin, stop + begin) if start < stop else (0, 0)
            for begin, (start, stop) in zip(begins, who_owns(sizes, ranks, rank))]  # fmt: skip


def all_as_long_as_the_longest(sizes, ranks, rank):
    length = -(-sum(sizes) // ranks)
    return within_tensors(sizes, rank * length, (rank + 1) * length)


def rest_at_the_end(sizes, ranks, rank):
    length = sum(sizes) // ranks
    last = sum(sizes) if rank == ranks - 1 else (rank + 1) * length
    return within_tensors(sizes, rank * length, last)


def one_rank_too_many_has_one_more(sizes, ranks, rank):
    length, rest = divmod(sum(sizes), ranks)
    first = rank * length + min(rank, rest)
    return within_tensors(sizes, first, first + length + (rank <= rest))


def stop_included(sizes, ranks, rank):
    return [(start, stop - 1) for start, stop in who_owns(sizes, ranks, rank)]


def as_spans(answer):
    """What an answer's spans are, as a tensor [tensors, 2]; (0, 0) for all that are empty."""

    def spans(sizes, ranks, rank):
        found = function(answer)(sizes, ranks, rank)
        if not isinstance(found, list | tuple) or len(found) != len(sizes):
            raise Wrong(
                f"a list of pairs (start, stop) is wanted, one for each of {len(sizes)} tensors, "
                f"not {found!r:.50}."
            )
        return torch.tensor([as_pair(each) for each in found])

    return spans


def as_pair(each):
    if not isinstance(each, list | tuple) or len(each) != 2:
        raise Wrong(f"what a rank owns of a tensor is a pair (start, stop), not {each!r:.40}.")
    start, stop = map(number, each)
    return (start, stop) if start < stop else (0.0, 0.0)


def check_who_owns(answer):
    cases = [((25, 16), 4, 2), ((25, 16), 4, 0), ((6, 3), 4, 2), ((4, 6), 4, 1), ((5,), 1, 0),
             ((7, 1, 12), 3, 1), ((1, 1, 1), 4, 3), ((30, 2), 4, 1), ((2, 9), 3, 2),
             ((30, 2), 4, 0), ((25, 16), 4, 1)]  # fmt: skip
    slips = [
        (as_spans(each_cut_alone), "you cut every tensor by itself, as FSDP2 does. Here they lie "
         "side by side in one vector, and that vector is cut."),
        (as_spans(counted_in_the_flat_vector),
         "start and stop count within each tensor, from its own first element."),
        (as_spans(all_as_long_as_the_longest),
         "the parts differ by one element at most: 10 elements on 4 ranks are 3, 3, 2 and 2."),
        (as_spans(rest_at_the_end),
         "what does not divide goes to the first ranks, one element each, not to the last one."),
        (as_spans(one_rank_too_many_has_one_more), "ranks count from 0: with a rest of one, "
         "rank 0 alone has one more, and with none nobody has."),
        (as_spans(stop_included), "stop is the first element that is not the rank's any more."),
    ]  # fmt: skip
    compare(as_spans(answer), as_spans(who_owns), cases, slips,
            otherwise="where in the vector of all tensors does the part of this rank begin?",
            shape_is="a list of spans")  # fmt: skip
    for case in cases:
        for start, stop in answer(*case):
            if start > stop:
                raise Wrong(f"of a tensor of which a rank has nothing, start = stop is wanted, not "
                            f"({start}, {stop}).")  # fmt: skip
    return "a cut through the middle of a tensor, empty parts and all: every element has one owner."


def mean_of_own_part(comm, gradient):
    """This rank's part of the mean over ranks of `gradient` [n], cut as by tensor_split."""
    parts = gradient.tensor_split(comm.size)
    mine = torch.empty_like(parts[comm.rank])
    reduce_scatter(comm, mine, parts, "mean")
    return mine


def use_mean(comm, answer, n):
    """The answer's value, everybody's gradients."""
    generator = torch.Generator().manual_seed(n)
    everyones = torch.randn(comm.size, n, generator=generator, dtype=torch.float64)
    return answer(comm, everyones[comm.rank].clone()), everyones


def check_mean_of_own_part(answer):
    for ranks, n in ((2, 8), (3, 10), (1, 5), (4, 3)):
        outcomes, trace = on_ranks(use_mean, ranks, function(answer), n)
        for rank, (got, everyones) in enumerate(outcomes):
            check_part(f"on {ranks} ranks, rank {rank}", rank, got, everyones)
        enough = (ranks - 1) * ranks * 8 * -(-n // ranks)  # parts may be filled up to one length
        if sum(trace.sent_bytes) > enough:
            raise Wrong(
                f"on {ranks} ranks {sum(trace.sent_bytes)} bytes are sent where {enough} are "
                "enough: the value is right, but ranks receive parts that they do not keep."
            )
    return "each rank gets the mean of its part alone, in half the bytes of an all-reduce."


def check_part(where, rank, got, everyones):
    mean, ranks = everyones.mean(dim=0), len(everyones)
    parts = mean.tensor_split(ranks)
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"{where} should return its part of the mean, a tensor.")
    if got.shape == parts[rank].shape and close(got, parts[rank]):
        return
    if ranks > 1 and got.shape == mean.shape:
        raise Wrong(f"{where} returns all {len(mean)} numbers: a rank keeps its own part only.")
    if got.shape != parts[rank].shape:
        raise Wrong(
            f"{where} returns {list(got.shape)} numbers, and its part has "
            f"{list(parts[rank].shape)}: gradient.tensor_split(comm.size)[comm.rank]."
        )
    if close(got, ranks * parts[rank]):
        raise Wrong(f"{where} has {ranks} times the mean: that is the sum over ranks.")
    if close(got, everyones[rank].tensor_split(ranks)[rank]):
        raise Wrong(f"{where} has its own gradient: the mean is that of all ranks.")
    for other, part in enumerate(parts):
        if close(got, part):
            raise Wrong(f"{where} has the mean of the part of rank {other}.")
    raise Wrong(f"{where} has other numbers than the mean of its part.")


def smallest_stage(elements, ranks, memory_bytes, optimizer_bytes=12):
    """The lowest stage, 0 to 3, whose 2 + 2 + K bytes a weight fit into `memory_bytes` a rank."""
    for stage in range(4):
        if bytes_a_rank(elements, ranks, stage, optimizer_bytes) <= memory_bytes:
            return stage
    return None


def bytes_a_rank(elements, ranks, stage, optimizer_bytes):
    weights = 2 / (ranks if stage >= 3 else 1)
    gradients = 2 / (ranks if stage >= 2 else 1)
    return elements * (weights + gradients + optimizer_bytes / (ranks if stage >= 1 else 1))


def weights_first(elements, ranks, memory_bytes, optimizer_bytes=12):
    for stage in range(4):
        parts = zip((1, 2, 3), (2, 2, optimizer_bytes))
        taken = sum(n / (ranks if stage >= first else 1) for first, n in parts)
        if elements * taken <= memory_bytes:
            return stage
    return None


def check_smallest_stage(answer):
    cases = [(7.5e9, 64, 100e9), (7.5e9, 64, 20e9), (7.5e9, 64, 130e9), (7.5e9, 64, 10e9),
             (1e9, 4, 6e9, 4), (2e9, 8, 14e9), (7.5e9, 64, 1e9), (1e9, 1, 15e9),
             (1e9, 1, 16e9)]  # fmt: skip
    for case in cases:
        elements, ranks, memory, *others = case
        got, right = function(answer)(*case), smallest_stage(*case)
        where = f"{elements / GB:g} billion weights on {ranks} rank{'s' * (ranks > 1)} of "
        where += f"{memory / GB:g} GB"
        if right is None and got is not None:
            raise Wrong(f"{where}: no stage fits, and the answer is None.")
        if got is None and right is not None:
            raise Wrong(f"{where}: nothing came back, and stage {right} fits.")
        if got is not None and number(got) != right:
            check_stage(where, case, number(got), right)
    return "the first stage that fits; the higher ones need less memory, and stage 3 sends more."


def check_stage(where, case, got, right):
    if got == smallest_stage(*case[:3]):
        raise Wrong(f"{where}: this optimizer has {case[3]} bytes a weight, not 12.")
    if got == weights_first(*case):
        raise Wrong(f"{where}: stage 1 shards what the optimizer has, stage 2 the gradients as "
                    "well, and only stage 3 the weights.")  # fmt: skip
    if got not in range(4):
        raise Wrong(f"{where}: a stage is 0, 1, 2 or 3, not {got:g}.")
    if got > right:
        raise Wrong(f"{where}: stage {got:g} fits, and so does stage {right}, which is lower.")
    taken = bytes_a_rank(*case[:2], got, *(case[3:] or (12,))) / GB
    raise Wrong(f"{where}: stage {got:g} takes {taken:.1f} GB on each of them.")


def check_tokens_to_hide(answer):
    got = number(answer)
    right = WEIGHT_BYTES * FLOPS_PER_S / (2 * BYTES_PER_S) * (RANKS - 1) / RANKS
    praise = f"400e12 / 50e9 x 63 / 64 = {right:,.0f} tokens; the size of the layer has cancelled."
    if abs(got / right - 1) < 0.005:  # 8,000, without 63 / 64, is another number
        return praise
    slips = {
        right * RANKS / (RANKS - 1): "a rank has its own 64th already: 63 of 64 parts come in.",
        2 * right: "a weight in bf16 has 2 bytes, and each is used for 2 flop with every token.",
        right / 2: "a weight takes part in a product and in a sum with every token: 2 flop.",
        right / (RANKS - 1): "a rank receives all parts but its own: 63 of 64.",
        8 * right: "50 GB/s are gigabytes, of 8 bits each: nothing is to be divided by 8.",
        RANKS * right: "that is the batch of all ranks together: one rank's was asked for.",
        right / 1000: "400 Tflop/s are 400 000 Gflop/s.",
        1 / right: "the other way round: flop a second, times seconds a byte.",
    }
    for slip, sentence in slips.items():
        if abs(got / slip - 1) < 0.02:
            raise Wrong(sentence)
    raise Wrong("that is another number: put 2 b n / F and 2 n beta (p - 1) / p equal, for n "
                "weights.")  # fmt: skip


def gradients_of_shards(comm, shards, x, target):
    """This rank's part of the gradient of sum((y - target)**2) / 2 in every layer's weights; a
    layer is tanh(x w), and of each w [width, width] this rank has the rows `shards[layer]`."""
    # memory for the weights of one layer, what comes into each layer, and what is returned
    whole, outputs, gradients = x.new_empty(x.shape[1], x.shape[1]), [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = (outputs[-1] - target) * (1 - outputs[-1] ** 2)
    for shard, seen in zip(reversed(shards), reversed(outputs[:-1])):
        gradients.insert(0, torch.empty_like(shard))
        reduce_scatter(comm, gradients[0], (seen.T @ error).tensor_split(comm.size))
        all_gather(comm, whole.tensor_split(comm.size), shard)  # freed since the forward pass
        error = error @ whole.T * (1 - seen**2)
    return gradients


def gradients_of_shards_with_the_bug(comm, shards, x, target):
    """This rank's part of the gradient of sum((y - target)**2) / 2 in every layer's weights."""
    whole, outputs, gradients = x.new_empty(x.shape[1], x.shape[1]), [x], []
    for shard in shards:
        all_gather(comm, whole.tensor_split(comm.size), shard)
        outputs.append(torch.tanh(outputs[-1] @ whole))
    error = (outputs[-1] - target) * (1 - outputs[-1] ** 2)
    for shard, seen in zip(reversed(shards), reversed(outputs[:-1])):
        gradients.insert(0, torch.empty_like(shard))
        reduce_scatter(comm, gradients[0], (seen.T @ error).tensor_split(comm.size))
        error = error @ whole.T * (1 - seen**2)
    return gradients


class Wholes(TorchDispatchMode):
    """`most`: how many pieces of memory that could hold a layer's weights were there at once."""

    def __init__(self):
        super().__init__()
        self.made, self.most = [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        found = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        self.made += [weakref.ref(each) for each in found
                      if each.untyped_storage().nbytes() >= 8 * WIDTH**2]  # fmt: skip
        live = [each for ref in self.made if (each := ref()) is not None]
        self.most = max(self.most, len({each.untyped_storage().data_ptr() for each in live}))
        self.made = list(map(weakref.ref, live))
        return out


def use_shards(comm, answer, layers):
    """The answer's gradients; the right ones of all rows, and of this rank's rows alone; whether
    the shards are what they were; how many matrices were there at once."""
    generator = torch.Generator().manual_seed(layers)
    drawn = [torch.randn(n, WIDTH, generator=generator, dtype=torch.float64)
             for n in (*[WIDTH] * layers, 2 * comm.size, 2 * comm.size)]  # fmt: skip
    *weights, x, target = drawn
    mine = slice(2 * comm.rank, 2 * comm.rank + 2)
    shards = [part_of(comm, w).clone() for w in weights]
    with Wholes() as wholes:
        got = answer(comm, shards, x[mine].clone(), target[mine].clone())
    right, own = (
        serial_gradients(weights, x, target),
        serial_gradients(weights, x[mine], target[mine]),
    )
    kept = all(torch.equal(shard, part_of(comm, w)) for shard, w in zip(shards, weights))
    return got, *[[part_of(comm, g) for g in each] for each in (right, own)], kept, wholes.most


def part_of(comm, w):
    return w.tensor_split(comm.size)[comm.rank]


def serial_gradients(weights, x, target):
    weights = [w.clone().requires_grad_() for w in weights]
    for w in weights:
        x = torch.tanh(x @ w)
    return torch.autograd.grad((x - target).square().sum() / 2, weights)


def check_gradients_of_shards(answer):
    for ranks, layers in ((3, 4), (2, MANY), (1, 3), (2, 1), (4, 2)):
        outcomes, trace = on_ranks(use_shards, ranks, function(answer), layers)
        for rank, (got, right, own, kept, most) in enumerate(outcomes):
            where = f"{layers} layers on {ranks} ranks, rank {rank}"
            if not kept:
                raise Wrong(f"{where}: the shards themselves have changed, and no step was asked.")
            check_gradients(where, ranks, got, right, own)
            if layers == MANY and most > MOST:
                raise Wrong(f"{where}: the gradients are right, but {most} matrices as large as a "
                            "layer's weights are there at once: gather a layer's weights when they "
                            "are needed, and use the memory of the last ones again.")  # fmt: skip
        check_memory(ranks, layers, sum(trace.sent_bytes))
    return "the weights of each layer come twice, and those of few layers are whole at a time."


def check_gradients(where, ranks, got, right, own):
    shapes = [list(g.shape) for g in right]
    if not isinstance(got, list | tuple) or [list(getattr(g, "shape", ())) for g in got] != shapes:
        raise Wrong(f"{where}: a list of gradients of the shapes {shapes} is wanted.")
    fine = [close(a, b) for a, b in zip(got, right)]
    if all(fine):
        return
    if ranks > 1 and all(map(close, got, own)):
        raise Wrong(f"{where} has the gradients of its own rows: all rows of all ranks count.")
    if all(close(ranks * a, b) for a, b in zip(got, right)):
        raise Wrong(f"{where} has the mean over ranks: the loss is a sum over all rows.")
    if len(got) > 1 and all(map(close, got[::-1], right)):
        raise Wrong(f"{where} has the gradients in the reverse order of the layers.")
    if fine[-1]:
        wrong = [str(layer) for layer, each in enumerate(fine) if not each]
        raise Wrong(f"{where}: the last layer's gradient is right, and not that of layer "
                    f"{', '.join(wrong)}. Which weights does `whole` hold there?")  # fmt: skip
    raise Wrong(f"{where}: already the last layer has another gradient.")


def check_memory(ranks, layers, sent):
    """Refuse fewer bytes than gathering twice takes, of which the first and the last two layers may
    be spared, and more."""
    if ranks == 1:
        return
    moved = sent / ((ranks - 1) * 8 * WIDTH**2)  # in layers
    if layers > 2 and moved < 3 * layers - 3.5:
        raise Wrong(
            f"{layers} layers on {ranks} ranks: the gradients are right, but weights stay whole "
            "from forward to backward. Stage 3 frees them, and gathers them again."
        )
    if moved > 3 * layers + 0.5:
        raise Wrong(
            f"{layers} layers on {ranks} ranks: the gradients are right, but {moved:.0f} times the "
            f"bytes of a layer are sent, and {3 * layers} are enough: two all-gathers and one "
            "reduce-scatter each."
        )


EXERCISES = [
    Exercise(
        "who_owns",
        "write who_owns(sizes, ranks, rank): tensors of so many elements lie side by side in one "
        "vector, which is cut as evenly as can be, the first ranks having one more; for each "
        "tensor, the pair (start, stop) of its own elements that `rank` owns.",
        check_who_owns,
        (
            "sum(sizes) // ranks elements each, and one more for the first sum(sizes) % ranks.",
            "the rank's part begins at rank * (total // ranks) + min(rank, total % ranks).",
            "of a tensor that begins at `begin`: (first - begin, last - begin), but not below 0, "
            "nor above its size.",
        ),
        who_owns,
    ),
    Exercise(
        "mean_of_own_part",
        "write mean_of_own_part(comm, gradient): of the mean over ranks of gradient [n], return "
        "the part that belongs to this rank, cut as by tensor_split, without sending more.",
        check_mean_of_own_part,
        (
            "an all-reduce is a reduce-scatter and an all-gather: which of them is wanted?",
            "parts = gradient.tensor_split(comm.size) may differ by one element.",
            'reduce_scatter(comm, torch.empty_like(parts[comm.rank]), parts, "mean")',
        ),
        mean_of_own_part,
    ),
    Exercise(
        "smallest_stage",
        "write smallest_stage(elements, ranks, memory_bytes, optimizer_bytes=12): the lowest stage "
        "from 0 to 3 whose 2 + 2 + optimizer_bytes bytes a weight fit on each rank; None if none.",
        check_smallest_stage,
        (
            "stage 0 takes elements * (2 + 2 + optimizer_bytes) on every rank.",
            "stage 1 divides the optimizer's bytes by ranks, stage 2 the gradients' too, stage 3 "
            "all.",
        ),
        (smallest_stage, bytes_a_rank),
    ),
    Exercise(
        "tokens_to_hide",
        "64 ranks, 400 Tflop/s each, 50 GB/s into each; weights are gathered in bf16. From how "
        "many tokens a rank on does a layer's forward pass take as long as gathering a layer?",
        check_tokens_to_hide,
        (
            "a layer of n weights takes 2 b n flop for b tokens.",
            "of its 2 n bytes, 63 / 64 have to come.",
            "2 b n / F = 2 n beta (p - 1) / p, and n cancels; beta is 1 / 50e9 seconds a byte.",
        ),
        "b = F beta (p - 1) / p = 400e12 / 50e9 x 63 / 64 = 7,875 tokens.",
    ),
    Exercise(
        "gradients_of_shards",
        "find the bug in gradients_of_shards(comm, shards, x, target), which is right for one and "
        "for two layers, and repair it; the weights of one layer only need be whole at a time.",
        check_gradients_of_shards,
        (
            "which layer's weights does `whole` hold when backward begins? And one layer later?",
            "backward of a layer needs that layer's weights: they were overwritten.",
            "gather them again before error @ whole.T.",
        ),
        gradients_of_shards,
        given=gradients_of_shards_with_the_bug,
    ),
]
