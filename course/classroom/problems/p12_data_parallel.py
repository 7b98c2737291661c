"""Exercises of notebook 12: the mean of gradients, buckets, accumulation without messages, parts of
unequal size, rows without a label."""

import itertools
import math
import re

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course.classroom.answers import function, on_ranks
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_reduce
from course.parallel.data.buckets import cut_into_buckets
from course.parallel.data.data_parallel import DataParallel

SHAPES = ((5, 2), (8,), (), (30, 4), (5, 5), (2,))  # 10, 8, 1, 120, 25 and 2 numbers
FROZEN, LIMIT = 1, 26 * 8  # has no gradient; bytes of a bucket
PARTS, PART_ROWS = 3, 4  # of a rank's batch
ROWS = ((3, 3), (3, 1, 2), (2, 0, 1), (4,))
KNOWN = ((6, 1, 2), (3, 3), (5, 0, 2), (2,))  # labels of each rank; all ranks have the same rows
SLACK_BYTES = 64  # a rank may send this much beside, to agree on a number


def gradients(rank, rows=1) -> list:
    """Gradients of SHAPES in float64, other ones on each rank; of no rows they are given as nan."""
    generator = torch.Generator().manual_seed(rank)
    made = [torch.rand(s, generator=generator, dtype=torch.float64) + rank for s in SHAPES]
    return [g if rows else g * math.nan for g in made]


def leaves(rank, rows=1, frozen=None) -> list:
    """Parameters that have these gradients, but for the frozen one."""
    found = [nn.Parameter(torch.zeros_like(g)) for g in gradients(rank, rows)]
    for number, (parameter, gradient) in enumerate(zip(found, gradients(rank, rows))):
        parameter.grad = None if number == frozen else gradient
    return found


def joined(tensors) -> torch.Tensor:
    """All numbers of some tensors, one after another; none for a None."""
    return torch.cat([torch.zeros(0) if t is None else t.detach().flatten() for t in tensors])


def check_gradients(where, found, right, guesses):
    """Refuse gradients `found` [rank][numbers] unlike `right`; `guesses` {words: [rank][numbers]}
    say what they may be instead."""
    for rank, mine in enumerate(found):
        if len(mine) != len(right):
            more = len(mine) > len(right)
            which = "a frozen parameter has got a gradient" if more else "a parameter has none"
            raise Wrong(f"{where}, rank {rank} has {len(mine)} numbers in its gradients, not "
                        f"{len(right)}: {which}.")  # fmt: skip
        if not torch.allclose(mine, right, rtol=1e-9, atol=1e-12):
            words = (w for w, by in guesses.items() if torch.allclose(mine, by[rank], rtol=1e-9))
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


def check_average_in_buckets(answer):
    for ranks, limit in ((1, LIMIT), (2, LIMIT), (3, 1), (2, LIMIT + 8), (3, 10**6)):
        where = f"on {ranks} rank{'s' * (ranks > 1)} with buckets of {limit} bytes"
        outcomes, trace = on_ranks(averaged, ranks, function(answer), limit)
        found, _ = zip(*outcomes)
        tensors = [[p.grad for p in leaves(rank, frozen=FROZEN)] for rank in range(ranks)]
        own, backwards = ([joined(mine[::way]) for mine in tensors] for way in (1, -1))
        right, total = sum(own) / ranks, sum(own)
        guesses = {"its own gradients": own, "the sum": [total] * ranks}
        guesses["the right numbers in the wrong places"] = [sum(backwards) / ranks] * ranks
        check_gradients(where, found, right, guesses)
        check_buckets(where, trace, limit)
    return "one all-reduce a bucket, the last gradients first."


def check_buckets(where, trace, limit):
    """Refuse other all-reduces than one for each bucket, in backward's order."""
    trained = [p for p in reversed(leaves(0, frozen=FROZEN)) if p.grad is not None]
    right = [len(joined(bucket.parameters)) for bucket in cut_into_buckets(trained, limit)]
    calls = [e.call for e in trace.events if e.rank == 0 and e.operation == "all_reduce"]
    sizes = [math.prod(map(int, re.findall(r"\d+", re.search(r"\[(.*?)\]", c)[1]))) for c in calls]
    if sizes != right and sorted(sizes) == sorted(right):
        raise Wrong(f"{where}, buckets of {sizes} numbers were sent: backward finds the gradients "
                    "of the last parameters first.")  # fmt: skip
    if sizes != right:
        raise Wrong(f"{where}, all_reduce calls: {len(sizes)}, of {sizes} numbers of 8 bytes; "
                    f"wanted: {len(right)}, of {right}. The last parameters come first, and a "
                    "bucket is closed as soon as it holds the bytes or more.")  # fmt: skip


def average_in_buckets(comm, parameters, bucket_bytes):
    """The gradients become their means over ranks: an all-reduce for each bucket of neighbours,
    from the last parameter to the first; one is closed when it holds bucket_bytes or more."""
    waiting = [p.grad for p in parameters if p.grad is not None]
    bucket = []
    while waiting:
        bucket.append(waiting.pop())
        full = sum(gradient.nbytes for gradient in bucket) >= bucket_bytes
        if full or not waiting:
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            all_reduce(comm, flat, "mean")
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket])):
                gradient.copy_(part.view(gradient.shape))
            bucket = []


def a_net():
    torch.manual_seed(0)
    return nn.Linear(6, 3).double()


def parts_of(rank) -> list:
    """PARTS pairs of rows [PART_ROWS, 6] and targets [PART_ROWS, 3], of one rank."""
    generator = torch.Generator().manual_seed(rank)
    rows = torch.rand(PARTS, PART_ROWS, 9, generator=generator, dtype=torch.float64) + rank
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
    answer(net, parts_of(comm.rank))
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
    for ranks in (1, 2, 3):
        where, parts = f"on {ranks} rank{'s' * (ranks > 1)}", [parts_of(r) for r in range(ranks)]
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
    rows = f"{max(held)} of {PARTS * PART_ROWS} rows"
    return f"at most {rows} in memory at a time, and the messages of one backward."


def mixes_of(parts) -> dict:
    """{words: gradient} of likely mistakes in the mean over all parts [rank][part]."""
    mean, first, last = (
        mean_of_parts(pairs)
        for pairs in (sum(parts, []), [mine[0] for mine in parts], [mine[-1] for mine in parts])
    )
    rest = last * (PARTS - 1) / PARTS
    return {
        f"{PARTS} times the gradient: each part is {PARTS} times too heavy": mean * PARTS,
        f"parts of unlike weight: only the last is divided by {PARTS}": mean * PARTS - rest,
        f"parts of unlike weight: all but the last are divided by {PARTS}": mean + rest,
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
        check_gradients(where, outcomes, right, {"its own gradients": own, **guesses})
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


def gradient_of_the_known(comm, net, x, y):
    """Leave in net the gradient of the mean loss over all labelled rows."""
    net.zero_grad()
    known = y >= 0
    cross_entropy(net(x[known]), y[known]).backward()
    for parameter in net.parameters():
        all_reduce(comm, parameter.grad, "mean")


def gradient_of_all_that_is_known(comm, net, x, y):
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
    answer(comm, net, *rows_of(comm.rank, known[comm.rank]))
    return joined(p.grad for p in net.parameters())


def check_gradient_of_the_known(answer):
    for known in KNOWN:
        ranks = len(known)
        where = f"with {known} labels" if ranks > 1 else f"on one rank with {known[0]} labels"
        outcomes, trace = on_ranks(labelled, ranks, function(answer), known)
        right, guesses = by_labels(known)
        check_gradients(where, outcomes, right, guesses)
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
        "average_in_buckets",
        "write average_in_buckets(comm, parameters, bucket_bytes): the same with one all_reduce "
        "for each bucket of neighbours, from the last parameter to the first; a bucket is closed "
        "when it holds bucket_bytes or more, or when there is nothing left. A gradient that is "
        "None is in no bucket.",
        check_average_in_buckets,
        (
            "gather gradients in a list until sum(g.nbytes for g in bucket) reaches the limit.",
            "torch.cat of the flattened gradients is one tensor; all_reduce it with 'mean'.",
            "flat.split([g.numel() for g in bucket]) gives the parts back: copy_ them.",
        ),
        average_in_buckets,
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
        "gradient_of_the_known",
        "find the bug in gradient_of_the_known(comm, net, x, y): all ranks have as many rows, and "
        "still the gradient is not that of one process. Repair it.",
        check_gradient_of_the_known,
        (
            "how many rows of each rank does its loss look at?",
            "of which number is cross_entropy's mean the mean, and of which should it be?",
            "reduction='sum' adds the losses up; divide by the labels of all ranks.",
        ),
        gradient_of_all_that_is_known,
        gradient_of_the_known,
    ),
]
