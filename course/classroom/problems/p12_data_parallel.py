"""Exercises of notebook 12: two times of a step, means of equal and unequal parts, buckets behind
backward, accumulation without messages, rows without a label."""

import functools
import itertools
import math
import re

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course.classroom.answers import function, number, on_ranks
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_reduce
from course.parallel.data.buckets import cut_into_buckets
from course.parallel.data.data_parallel import DataParallel

BACKWARD_MS, BUCKETS, SLOW_MS, FAST_MS = 60, 4, 25, 12.5  # of a bucket's all-reduce: two networks
SHAPES = ((5, 2), (8,), (1,), (30, 4), (5, 5), (2,))  # 10, 8, 1, 120, 25 and 2 numbers
FROZEN, LIMIT = 1, 26 * 8  # has no gradient; bytes of a bucket
PARTS, PART_ROWS = {1: 3, 2: 2, 3: 4}, 4  # of a rank's batch, on so many ranks
ROWS = ((3, 3), (4, 1, 2), (2, 0, 2), (4,))
KNOWN = ((6, 1, 2), (3, 3), (5, 0, 2), (2,))  # labels of each rank; all ranks have the same rows
TURNS = {"": 1.0, ", in the second step": -3.0}  # what a step's gradients are multiplied by
COUNTED = 1e-6  # where an answer may count in float32
SLACK_BYTES = 64  # a rank may send this much beside, to agree on a number


def over_ms(bucket_ms: float) -> float:
    """When the last all-reduce is over, counted from the beginning of backward."""
    arithmetic_ms = BACKWARD_MS / BUCKETS
    return arithmetic_ms + (BUCKETS - 1) * max(arithmetic_ms, bucket_ms) + bucket_ms


def check_overlapped_ms(answer):
    check_time(number(answer), SLOW_MS, {
        BACKWARD_MS + BUCKETS * SLOW_MS: "that is a step without overlap: the first bucket is full "
        "after a quarter of backward, and may leave then.",
        BUCKETS * SLOW_MS: "the first all-reduce cannot begin with backward: its bucket has to be "
        "computed first.",
        BACKWARD_MS + SLOW_MS: "when backward ends, more than one all-reduce is left: they take "
        "longer than the arithmetic, and queue.",
        BACKWARD_MS: "backward hides no more than it lasts: four all-reduces of 25 ms take longer.",
    })  # fmt: skip
    return "15 + 4 * 25 = 115 ms: the network sets the pace, once the first bucket is there."


def check_bf16_ms(answer):
    check_time(number(answer), FAST_MS, {
        over_ms(SLOW_MS) / 2: "half the bytes are not half the time: the arithmetic is as "
        "long as before.",
        BACKWARD_MS / BUCKETS + BUCKETS * FAST_MS: "this network is faster than the arithmetic, "
        "and waits for each bucket: which of the two sets the pace now?",
        BACKWARD_MS: "the last bucket is full when backward ends, and still has to be sent.",
        BACKWARD_MS + BUCKETS * FAST_MS: "that is a step without overlap.",
    })  # fmt: skip
    return (
        "60 + 12.5 = 72.5 ms: the arithmetic sets the pace, and only the last all-reduce is "
        "exposed. Smaller buckets would expose less."
    )


def check_time(took_ms, bucket_ms, slips):
    """Refuse another time than that of buckets which take `bucket_ms` each; slips {ms: words}."""
    for slip_ms, sentence in slips.items():
        if math.isclose(took_ms, slip_ms, rel_tol=0.002):
            raise Wrong(sentence)
    if not math.isclose(took_ms, over_ms(bucket_ms), rel_tol=0.002):
        raise Wrong(f"with {took_ms:.4g} ms, {took_ms - BACKWARD_MS:.4g} ms would be left when "
                    "backward has ended. Draw both lanes.")  # fmt: skip


def gradients(rank, rows=1) -> list:
    """Gradients of SHAPES in float64, other ones on each rank; of no rows they are given as nan."""
    generator = torch.Generator().manual_seed(rank)
    made = [torch.rand(s, generator=generator, dtype=torch.float64) + rank for s in SHAPES]
    return [g if rows else g * math.nan for g in made]


def leaves(rank, rows=1, frozen=None) -> list:
    """Parameters that have these gradients, but for the frozen one."""
    found = [nn.Parameter(torch.zeros_like(g)) for g in gradients(rank, rows)]
    for place, (parameter, gradient) in enumerate(zip(found, gradients(rank, rows))):
        parameter.grad = None if place == frozen else gradient
        parameter.requires_grad_(place != frozen)
    return found


def joined(tensors) -> torch.Tensor:
    """All numbers of some tensors, one after another; none for a None."""
    return torch.cat([torch.zeros(0) if t is None else t.detach().flatten() for t in tensors])


def check_gradients(where, found, right, guesses, tolerance=1e-9):
    """Refuse gradients `found` [rank][numbers] unlike `right`; `guesses` {words: [rank][numbers]}
    say what they may be instead."""
    near = functools.partial(torch.allclose, rtol=tolerance, atol=1e-12)
    for rank, mine in enumerate(found):
        if len(mine) != len(right):
            more = len(mine) > len(right)
            which = (
                "a frozen parameter has got a gradient"
                if more
                else (
                    "a parameter has none any more (all_reduce works in place and returns nothing)"
                )
            )
            raise Wrong(f"{where}, rank {rank} has {len(mine)} numbers in its gradients, not "
                        f"{len(right)}: {which}.")  # fmt: skip
        if not near(mine, right):
            words = (w for w, by in guesses.items() if near(mine, by[rank]))
            numbers = "numbers that are not finite" if not mine.isfinite().all() else "another mix"
            raise Wrong(f"{where}, rank {rank} holds {next(words, numbers)}.")
        if not torch.equal(mine, found[0]):
            raise Wrong(f"{where}, rank {rank} differs from rank 0 in the last bits: copies drift "
                        "apart unless all get the result of one addition.")  # fmt: skip


def check_bytes(where, trace, numbers):
    """Refuse more bytes in all than all-reduces of so many float64 need."""
    ranks, sent = trace.ranks, sum(trace.sent_bytes)
    enough = 2 * (ranks - 1) * 8 * numbers
    if sent > enough + ranks * SLACK_BYTES:
        raise Wrong(f"{where}, {sent} bytes are sent in all where {enough} are enough.")


def check_average_gradients(answer):
    for ranks in (1, 2, 3):
        where = f"on {ranks} rank{'s' * (ranks > 1)}"
        outcomes, trace = on_ranks(averaged, ranks, function(answer))
        found, weights = zip(*outcomes)
        if any(w.abs().max() > 0 for w in weights):
            raise Wrong(f"{where}, the parameters themselves have changed: only .grad should.")
        own = [joined(p.grad for p in leaves(rank, frozen=FROZEN)) for rank in range(ranks)]
        right, total = sum(own) / ranks, sum(own)
        guesses = {"its own gradients": own, "the sum": [total] * ranks}
        guesses["the mean divided once more"] = [right / ranks] * ranks
        check_gradients(where, found, right, guesses)
        check_bytes(where, trace, len(right))
    return "the mean on every rank, the same bits, and no more bytes than all-reduces send."


def averaged(comm, answer, *args):
    parameters = leaves(comm.rank, frozen=FROZEN)
    answer(comm, parameters, *args)
    return joined(p.grad for p in parameters), joined(parameters)


def average_gradients(comm, parameters):
    """The gradients become their means over ranks; one that nobody has (None) is left alone."""
    for parameter in parameters:
        if parameter.grad is not None:
            all_reduce(comm, parameter.grad, "mean")


def check_average_behind_backward(answer):
    for ranks, limit in ((1, LIMIT), (2, LIMIT), (3, 1), (2, LIMIT + 8), (3, 10**6)):
        where = f"on {ranks} rank{'s' * (ranks > 1)} with buckets of {limit} bytes"
        outcomes, trace = on_ranks(behind_backward, ranks, function(answer), limit)
        found, begun = zip(*outcomes)
        if isinstance(found[0], str):
            raise Wrong(f"what it returns must be a function that waits, not {found[0]:.40}.")
        check_turns(where, found)
        check_buckets(where, trace, limit)
        check_begun(where, begun[0], limit)
    return "each bucket leaves as soon as backward has filled it, the last gradients first."


def check_turns(where, found):
    """Refuse gradients `found` [rank][step] that are not the means of those of their own step."""
    ranks = len(found)
    tensors = [[p.grad for p in leaves(rank, frozen=FROZEN)] for rank in range(ranks)]
    own, backwards = ([joined(mine[::way]) for mine in tensors] for way in (1, -1))
    right, total = sum(own) / ranks, sum(own)
    guesses = {"its own gradients": own, "the sum": [total] * ranks}
    guesses["the right numbers in the wrong places"] = [sum(backwards) / ranks] * ranks
    for turn, (words, factor) in enumerate(TURNS.items()):
        slips = {slip: [factor * each for each in by] for slip, by in guesses.items()}
        slips["the means of the first step"] = [right] * ranks
        check_gradients(where + words, [each[turn] for each in found], factor * right, slips)


def behind_backward(comm, answer, limit):
    """The gradients after each of two steps; how many were there when each all-reduce began."""
    parameters, arrived, begun = leaves(comm.rank, frozen=FROZEN), [], []
    trained = [p for p in parameters if p.requires_grad]
    wanted = [p.grad for p in trained]
    for parameter in trained:
        parameter.grad = None  # there is none before the first step
        parameter.register_post_accumulate_grad_hook(arrived.append)
    submit = comm.submit

    def watched_submit(*args, **options):
        begun.append(len(arrived))
        return submit(*args, **options)

    comm.submit = watched_submit
    finish, found = answer(comm, parameters, limit), []
    for factor in TURNS.values():
        for parameter in trained:
            parameter.grad = None
        arrived.clear()
        one_after_another(trained, [factor * gradient for gradient in wanted]).backward()
        if not callable(finish):
            return repr(finish), begun
        finish()
        found.append(joined(p.grad for p in parameters))
    return found, begun


def one_after_another(parameters, wanted):
    """A scalar whose backward finds the gradients `wanted`, that of the last parameter first."""
    chain = torch.zeros((), dtype=torch.float64)
    for parameter, gradient in zip(parameters, wanted):
        chain = _Link.apply(chain, parameter, gradient)
    return chain


class _Link(torch.autograd.Function):
    """One parameter in a chain of them."""

    @staticmethod
    def forward(context, chain, parameter, gradient):
        context.gradient = gradient
        return chain.clone()

    @staticmethod
    def backward(context, slope):
        return slope, context.gradient.clone(), None


def sizes_of(buckets) -> list:
    return [sum(gradient.numel() for gradient in bucket) for bucket in buckets]


def buckets_by(gradients, full) -> list:
    """Neighbours; a bucket is closed when it is `full(bytes of it, bytes of the next)`."""
    buckets = [[]]
    for gradient, following in itertools.zip_longest(gradients, gradients[1:]):
        buckets[-1].append(gradient)
        held = sum(each.nbytes for each in buckets[-1])
        if following is not None and full(held, following.nbytes):
            buckets.append([])
    return buckets


def check_buckets(where, trace, limit):
    """Refuse other all-reduces than one for each bucket and step, in backward's order."""
    trained = [p.grad for p in reversed(leaves(0, frozen=FROZEN)) if p.grad is not None]
    calls = [e.call for e in trace.events if e.rank == 0 and e.operation == "all_reduce"]
    sizes = [math.prod(map(int, re.findall(r"\d+", re.search(r"\[(.*?)\]", c)[1]))) for c in calls]
    buckets = buckets_by(trained, lambda held, _: held >= limit)
    right = sizes_of(buckets)
    if sizes == 2 * right:
        return
    if not sizes:
        raise Wrong(f"{where}, no all-reduce is called at all: has every parameter with "
                    "requires_grad a hook, though it has no gradient yet?")  # fmt: skip
    full = sum(each.nbytes for each in buckets[-1]) >= limit
    slips = {
        "every gradient is sent alone": [g.numel() for g in trained],
        "all gradients are sent in one bucket": [sum(right)],
        "the buckets are cut from the first parameter on, and backward finds the last one first":
            sizes_of(buckets_by(trained[::-1], lambda held, _: held >= limit)),
        "buckets are sent in another order than backward fills them": right[::-1],
        "a bucket is closed before it would exceed the limit, not when it has reached it":
            sizes_of(buckets_by(trained, lambda held, more: held + more > limit)),
        "a bucket that holds exactly the limit stays open":
            sizes_of(buckets_by(trained, lambda held, _: held > limit)),
        "the last bucket, which is not full, is never sent": right if full else right[:-1],
    }  # fmt: skip
    told = f"buckets of {sizes[: len(sizes) // 2]} numbers a step"
    for words, slip in slips.items():
        if slip != right and sizes == 2 * slip:
            raise Wrong(f"{where}, {words}: {told}, wanted {right}.")
    raise Wrong(f"{where}, all_reduce is called {len(sizes)} times in two steps, for {sizes} "
                f"numbers; wanted in each step: {right}.")  # fmt: skip


def check_begun(where, begun, limit):
    """Refuse all-reduces that do not begin when their bucket is full."""
    trained = [p for p in reversed(leaves(0, frozen=FROZEN)) if p.grad is not None]
    full = list(itertools.accumulate(len(b.parameters) for b in cut_into_buckets(trained, limit)))
    if not begun:
        raise Wrong(f"{where}, no all-reduce is begun by comm.submit: the rank waits for each one.")
    if begun != 2 * full:
        late = all(count == len(trained) for count in begun)
        said = "only when backward is over" if late else f"when {begun} gradients are there"
        raise Wrong(f"{where}, the all-reduces begin {said}; the buckets are full when {full} are "
                    "there.")  # fmt: skip


def average_behind_backward(comm, parameters, bucket_bytes):
    """From now on backward averages the gradients; returns a function that waits for all."""
    bucket, begun = [], []

    def begin():
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        begun.append((bucket.copy(), flat, comm.submit(all_reduce, flat, "mean")))
        bucket.clear()

    def ready(parameter):
        bucket.append(parameter.grad)
        if sum(gradient.nbytes for gradient in bucket) >= bucket_bytes:
            begin()

    def finish():
        if bucket:
            begin()
        for gradients, flat, handle in begun:
            handle.wait()
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
                gradient.copy_(part.view_as(gradient))
        begun.clear()

    for parameter in parameters:
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(ready)
    return finish


def a_net():
    torch.manual_seed(0)
    return nn.Linear(6, 3).double()


def parts_of(rank, ranks) -> list:
    """Pairs of rows [PART_ROWS, 6] and targets [PART_ROWS, 3], of one rank of so many."""
    generator = torch.Generator().manual_seed(rank)
    rows = torch.rand(PARTS[ranks], PART_ROWS, 9, generator=generator, dtype=torch.float64) + rank
    return [(part[:, :6], part[:, 6:]) for part in rows]


def accumulate(net, parts):
    """Leave in net the gradient of the mean loss over all parts of all ranks, sent once."""
    net.zero_grad()
    with net.no_sync():
        for x, y in parts[:-1]:
            (((net(x) - y) ** 2).mean() / len(parts)).backward()
    x, y = parts[-1]
    (((net(x) - y) ** 2).mean() / len(parts)).backward()


def accumulated(comm, answer):
    net = DataParallel(a_net(), comm)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)  # of the step before
    log, before = watched(net.module), comm.meter.sent_bytes
    answer(net, parts_of(comm.rank, comm.size))
    gradient = joined(p.grad for p in net.parameters())
    return gradient, comm.meter.sent_bytes - before, most_held(log)


def watched(module) -> list:
    """A log that grows: (forward, rows) at each forward of module, (forward, -rows) when a backward
    comes by."""
    log = []

    def note(module, args, out):
        number, rows = len(log), len(out)
        log.append((number, rows))
        if out.requires_grad:
            out.register_hook(lambda _: log.append((number, -rows)))

    module.register_forward_hook(note)
    return log


def most_held(log) -> int:
    """The most rows at one time that were between their forward and their backward."""
    used = {forward for forward, rows in log if rows < 0}
    held = itertools.accumulate(rows for forward, rows in log if forward in used)
    return max(held, default=0)


def mean_of_parts(pairs) -> torch.Tensor:
    """The gradient of the mean loss over some parts of equal size, on one rank."""
    net = a_net()
    sum(((net(x) - y) ** 2).mean() / len(pairs) for x, y in pairs).backward()
    return joined(p.grad for p in net.parameters())


def check_accumulate(answer):
    for ranks in PARTS:
        where = f"on {ranks} rank{'s' * (ranks > 1)} with {PARTS[ranks]} parts each"
        parts = [parts_of(rank, ranks) for rank in range(ranks)]
        (found, sent, held), (_, enough, _) = (
            zip(*on_ranks(accumulated, ranks, each)[0]) for each in (function(answer), accumulate)
        )
        own = [mean_of_parts(mine) for mine in parts]
        guesses = {words: [value] * ranks for words, value in mixes_of(parts).items()}
        alone = {"the gradient of its own parts: the last backward has to send": own}
        check_gradients(where, found, mean_of_parts(sum(parts, [])), {**alone, **guesses})
        if sum(sent) > sum(enough):
            raise Wrong(f"{where}, {sum(sent)} bytes are sent where {sum(enough)} are enough: only "
                        "the last backward has to send.")  # fmt: skip
        if max(held) > PART_ROWS:
            raise Wrong(f"{where}, {max(held)} rows are in memory at a time, not {PART_ROWS}: the "
                        "backward of a part comes before the next one's forward.")  # fmt: skip
    return f"at most {max(held)} rows in memory at a time, and the messages of one backward."


def mixes_of(parts) -> dict:
    """{words: gradient} of likely mistakes in the mean over all parts [rank][part]."""
    mean, first, last = (
        mean_of_parts(pairs)
        for pairs in (sum(parts, []), [mine[0] for mine in parts], [mine[-1] for mine in parts])
    )
    count, before = len(parts[0]), PARTS[1]
    rest = last * (count - 1) / count
    return {
        f"{count} times the gradient: each part is {count} times too heavy": mean * count,
        f"parts of unlike weight: only the last is divided by {count}": mean * count - rest,
        f"parts of unlike weight: all but the last are divided by {count}": mean + rest,
        f"each part divided by {before}, whatever their number": mean * count / before,
        "the gradient of the last parts alone": last,
        "the gradient of the first parts alone": first,
        "the gradient of the step before as well": mean + 1,
    }


def check_average_by_rows(answer):
    for rows in ROWS:
        ranks = len(rows)
        where = f"with {rows} rows" if ranks > 1 else f"on one rank with {rows[0]} rows"
        outcomes, trace = on_ranks(by_rows, ranks, function(answer), rows)
        weighted = [joined(gradients(r)) * count if count else 0.0 for r, count in enumerate(rows)]
        right, own = sum(weighted) / sum(rows), [joined(gradients(r)) for r in range(ranks)]
        guesses = {
            "the mean of the means": sum(own) / ranks,
            "the sum over rows": right * sum(rows),
            "the sum over rows, divided by the ranks": right * sum(rows) / ranks,
            "the right gradient divided by the ranks": right / ranks,
        }
        guesses = {words: [value] * ranks for words, value in guesses.items()}
        guesses["the sum over rows, divided by its own rows"] = [
            right * sum(rows) / max(1, count) for count in rows
        ]
        check_gradients(where, outcomes, right, {"its own gradients": own, **guesses}, COUNTED)
        check_bytes(where, trace, len(right))
    return "every row counts the same, on whichever rank it is; no rows count nothing."


def by_rows(comm, answer, rows):
    parameters = leaves(comm.rank, rows[comm.rank])
    answer(comm, parameters, rows[comm.rank])
    return joined(p.grad for p in parameters)


def average_by_rows(comm, parameters, rows):
    """The gradients, each a mean over its rank's rows, become the mean over all ranks' rows."""
    total = torch.tensor(float(rows))
    all_reduce(comm, total)
    for parameter in parameters:
        if rows:
            parameter.grad *= rows / total.item()
        else:
            parameter.grad.zero_()  # of no rows it is given as nan, and nan times 0 is nan
        all_reduce(comm, parameter.grad)


def mean_of_known_means(comm, net, x, y):
    """Leave in net the gradient of the mean loss over all labelled rows."""
    net.zero_grad()
    known = y >= 0
    cross_entropy(net(x[known]), y[known]).backward()
    for parameter in net.parameters():
        all_reduce(comm, parameter.grad, "mean")


def gradient_of_the_known(comm, net, x, y):
    """Leave in net the gradient of the mean loss over all labelled rows; -1 is no label.

    The rows are dealt evenly, and the labels are not: only their sum over ranks may divide.
    """
    net.zero_grad()
    known = y >= 0
    count = known.sum().double()
    all_reduce(comm, count)
    (cross_entropy(net(x[known]), y[known], reduction="sum") / count).backward()
    for parameter in net.parameters():
        all_reduce(comm, parameter.grad)


def rows_of(rank, known):
    """Six rows [6, 6] of a rank and their labels [6], of which `known` are not -1."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.rand(6, 6, generator=generator, dtype=torch.float64) + rank
    return x, torch.tensor([(n + rank) % 3 if n < known else -1 for n in range(6)])


def labelled(comm, answer, known):
    net = a_net()
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)  # of the step before
    answer(comm, net, *rows_of(comm.rank, known[comm.rank]))
    return joined(p.grad for p in net.parameters())


def check_gradient_of_the_known(answer):
    for known in KNOWN:
        ranks = len(known)
        where = f"with {known} labels" if ranks > 1 else f"on one rank with {known[0]} labels"
        outcomes, trace = on_ranks(labelled, ranks, function(answer), known)
        right, guesses = by_labels(known)
        check_gradients(where, outcomes, right, guesses, COUNTED)
        check_bytes(where, trace, len(right))
    return "every label counts the same: by the number of labels on all ranks, not of ranks."


def by_labels(known) -> tuple:
    """The right gradient where ranks know so many labels, and {words: [rank][numbers]} of likely
    mistakes."""
    x, y = (torch.cat(part) for part in zip(*[rows_of(r, n) for r, n in enumerate(known)]))
    ranks, total = len(known), gradient_of_sum(x, y)
    right = total / sum(known)
    means = [gradient_of_sum(*rows_of(r, n)) / max(1, n) for r, n in enumerate(known)]
    guesses = {
        "the mean of the ranks' means, as if all had as many labels": sum(means) / ranks,
        "the sum of the ranks' means": sum(means),
        "the sum over labels, not their mean": total,
        "the sum over labels, divided by all rows": total / len(y),
        "the sum over labels, divided by the ranks": total / ranks,
        "the right gradient divided by the ranks": right / ranks,
        "the gradients of the step before as well": right + 1,
        "the sum of the ranks' old gradients as well": right + ranks,
        "the mean over all rows, as if -1 were class 0": gradient_of_sum(x, y.clamp(0)) / len(y),
    }
    guesses = {words: [value] * ranks for words, value in guesses.items()}
    return right, {"its own gradient": means, **guesses}


def gradient_of_sum(x, y) -> torch.Tensor:
    """The gradient of the loss of all labelled rows added up, on one rank."""
    net = a_net()
    cross_entropy(net(x), y, ignore_index=-1, reduction="sum").backward()
    return joined(p.grad for p in net.parameters())


EXERCISES = [
    Exercise(
        "overlapped_ms",
        "backward takes 60 ms and fills 4 equal buckets; each all-reduce takes 25 ms. How many ms "
        "after the beginning of backward is the last one over?",
        check_overlapped_ms,
        (
            "draw two lanes: backward fills a bucket every 15 ms.",
            "when does the first all-reduce begin, and does the network ever rest after that?",
        ),
        "the first bucket is full after 15 ms; then four all-reduces of 25 ms follow without a "
        "gap: 15 + 4 * 25 = 115 ms.",
    ),
    Exercise(
        "bf16_ms",
        "the same, but gradients travel in bf16, and each all-reduce takes 12.5 ms. How many ms "
        "after the beginning of backward is the last one over?",
        check_bf16_ms,
        (
            "draw the two lanes again: which of them has gaps now?",
            "when is the last bucket full, and what is left to do then?",
        ),
        "an all-reduce of 12.5 ms is over before the next bucket is full, 15 ms after the last: "
        "the network waits. The last bucket is full after 60 ms: 60 + 12.5 = 72.5 ms.",
    ),
    Exercise(
        "average_gradients",
        "write average_gradients(comm, parameters): every gradient becomes the mean over ranks, "
        "in place; where there is none (None), leave it.",
        check_average_gradients,
        (
            "all_reduce(comm, tensor, 'mean') does it for one tensor.",
            "it is the gradient that has to change, parameter.grad, not the parameter.",
            "a frozen parameter's gradient is None, on all ranks alike.",
        ),
        average_gradients,
    ),
    Exercise(
        "average_by_rows",
        "write average_by_rows(comm, parameters, rows): the gradients are means over this rank's "
        "rows, and become the mean over the rows of all ranks, in place. Of 0 rows they are given "
        "as nan.",
        check_average_by_rows,
        (
            "a mean times its number of rows is a sum, and sums may be added up.",
            "how many rows are there in all? torch.tensor(float(rows)), and an all_reduce.",
            "0 * nan is nan: a rank without rows sets its gradients to zero.",
        ),
        average_by_rows,
    ),
    Exercise(
        "average_behind_backward",
        "write average_behind_backward(comm, parameters, bucket_bytes): from now on backward "
        "begins one all-reduce for each bucket of gradients as soon as it is full, that is, holds "
        "bucket_bytes or more; return a function that sends what is left, waits for all, and puts "
        "the means in the gradients. Frozen parameters are left alone.",
        check_average_behind_backward,
        (
            "in the hook, gather gradients in a list until sum(g.nbytes for g in bucket) reaches "
            "the limit; only a parameter with requires_grad can have a hook.",
            "torch.cat of the flattened gradients is one tensor: comm.submit(all_reduce, flat, "
            "'mean'); keep the handle with flat and the gradients.",
            "to finish: begin the last bucket if it is not empty, then for each handle wait, and "
            "copy_ the parts of flat.split([...]) back; clear the list for the next step.",
        ),
        average_behind_backward,
    ),
    Exercise(
        "accumulate",
        "write accumulate(net, parts): net is a DataParallel with old gradients, parts are pairs "
        "(x, y); leave in it the gradient of the mean of ((net(x) - y) ** 2).mean() over all parts "
        "of all ranks; one part at a time, and only the last backward may send.",
        check_accumulate,
        (
            "begin with net.zero_grad(): another step's gradients are still there.",
            "backward adds up; the mean over the parts is a sum of losses / len(parts).",
            "with net.no_sync(): all parts but the last; then the last one outside of it.",
        ),
        accumulate,
    ),
    Exercise(
        "gradient_of_the_known",
        "find the bug in gradient_of_the_known(comm, net, x, y): all ranks have as many rows, and "
        "still the gradient is not that of one process. Repair it.",
        check_gradient_of_the_known,
        (
            "how many rows of each rank does its loss look at?",
            "of which number is cross_entropy's mean the mean, and of which should it be?",
            "reduction='sum' adds the losses up; divide by the labels of all ranks.",
        ),
        gradient_of_the_known,
        given=mean_of_known_means,
    ),
]
