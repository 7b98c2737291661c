"""Times, a mean of gradients, buckets behind backward, accumulation, uneven parts, missing labels:
likely answers."""

import torch
from torch.nn.functional import cross_entropy

from course.classroom.problems.p12_data_parallel import (
    accumulate,
    average_behind_backward,
    average_by_rows,
    average_gradients,
    gradient_of_the_known,
    mean_of_known_means,
)
from course.collectives import all_gather, all_reduce, broadcast, reduce
from course.parallel.data.buckets import cut_into_buckets
from tests.classroom.gallery import Gallery, gallery_tests

# The mean of gradients


def average_stub(comm, parameters):
    """The gradients become their means over ranks."""
    ...


def mean_through_the_root(comm, parameters):
    for parameter in parameters:
        if parameter.grad is None:
            continue
        reduce(comm, parameter.grad)
        parameter.grad /= comm.size
        broadcast(comm, parameter.grad)


def mean_of_all_at_once(comm, parameters):
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(comm, flat, "mean")
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view(g.shape))


def forgets_the_frozen(comm, parameters):
    for parameter in parameters:
        all_reduce(comm, parameter.grad, "mean")


def adds_gradients_up(comm, parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            all_reduce(comm, parameter.grad)


def divides_twice(comm, parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            all_reduce(comm, parameter.grad, "mean")
            parameter.grad /= comm.size


def skips_what_is_frozen(comm, parameters):
    for parameter in parameters:
        if parameter.requires_grad:
            all_reduce(comm, parameter.grad, "mean")


def keeps_what_comes_back(comm, parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = all_reduce(comm, parameter.grad, "mean")


def averages_a_copy(comm, parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            all_reduce(comm, parameter.grad.clone(), "mean")


def averages_the_parameters(comm, parameters):
    mean_of_all_at_once(comm, parameters)
    for parameter in parameters:
        with torch.no_grad():
            parameter += comm.rank + 1
        all_reduce(comm, parameter.detach(), "mean")


def fills_the_frozen(comm, parameters):
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        all_reduce(comm, parameter.grad, "mean")


def everyone_gathers(comm, parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            everyones = [torch.empty_like(parameter.grad) for _ in range(comm.size)]
            all_gather(comm, everyones, parameter.grad)
            parameter.grad = sum(everyones) / comm.size


def everyone_adds_his_own_way(comm, parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            mine, out = parameter.grad.clone(), torch.empty_like(parameter.grad)
            for step in range(1, comm.size):
                comm.exchange(
                    mine, (comm.rank + step) % comm.size, out, (comm.rank - step) % comm.size
                )
                parameter.grad += out
            parameter.grad /= comm.size


# Buckets


def behind_stub(comm, parameters, bucket_bytes):
    """From now on backward averages the gradients; returns a function that waits for all."""
    ...


def sends(comm, parameters, full, begin):
    """Buckets closed by full(bucket, how many gradients are left); `finish` that puts them back."""
    known = [p for p in parameters if p.requires_grad]
    bucket, begun = [], []

    def send():
        flat = torch.cat([g.flatten() for g in bucket])
        begun.append((list(bucket), flat, begin(flat)))
        bucket.clear()

    def ready(p):
        bucket.append(p.grad)
        if full(bucket, [q is p for q in known].index(True)):
            send()

    def finish():
        if bucket:
            send()
        for grads, flat, handle in begun:
            handle and handle.wait()
            for g, part in zip(grads, flat.split([g.numel() for g in grads])):
                g.copy_(part.view_as(g))
        begun.clear()

    for p in known:
        p.register_post_accumulate_grad_hook(ready)
    return finish


def nbytes(bucket):
    return sum(g.nbytes for g in bucket)


class Sender:
    """Keeps parameters, not gradients, and gives each a part of the bucket as its gradient."""

    def __init__(self, comm, bucket_bytes):
        self.comm, self.bucket_bytes, self.waiting, self.begun = comm, bucket_bytes, [], []

    def ready(self, p):
        self.waiting.append(p)
        if nbytes(q.grad for q in self.waiting) >= self.bucket_bytes:
            self.send()

    def send(self):
        flat = torch.cat([p.grad.flatten() for p in self.waiting])
        self.begun.append((self.comm.submit(all_reduce, flat, op="mean"), flat, self.waiting))
        self.waiting = []

    def finish(self):
        if self.waiting:
            self.send()
        for handle, flat, held in self.begun:
            handle.wait()
            for p in held:
                p.grad, flat = flat[: p.numel()].view(p.shape), flat[p.numel() :]
        self.begun = []


def buckets_by_a_class(comm, parameters, bucket_bytes):
    sender = Sender(comm, bucket_bytes)
    for p in parameters:
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(sender.ready)
    return sender.finish


def by_sums(comm, parameters, bucket_bytes):
    def begin(flat):
        flat /= comm.size
        return comm.submit(all_reduce, flat)

    return sends(comm, parameters, lambda bucket, left: nbytes(bucket) >= bucket_bytes, begin)


def mean_of(comm):
    return lambda flat: comm.submit(all_reduce, flat, "mean")


def one_each(comm, parameters, bucket_bytes):
    return sends(comm, parameters, lambda bucket, left: True, mean_of(comm))


def all_in_one(comm, parameters, bucket_bytes):
    return sends(comm, parameters, lambda bucket, left: left == 0, mean_of(comm))


def two_by_two(comm, parameters, bucket_bytes):
    return sends(comm, parameters, lambda bucket, left: len(bucket) == 2, mean_of(comm))


def only_above_the_limit(comm, parameters, bucket_bytes):
    return sends(
        comm, parameters, lambda bucket, left: nbytes(bucket) > bucket_bytes, mean_of(comm)
    )


def never_beyond_the_limit(comm, parameters, bucket_bytes):
    known = [p for p in parameters if p.requires_grad]

    def full(bucket, left):
        return left == 0 or nbytes(bucket) + 8 * known[left - 1].numel() > bucket_bytes

    return sends(comm, parameters, full, mean_of(comm))


def sums_in_buckets(comm, parameters, bucket_bytes):
    def full(bucket, left):
        return nbytes(bucket) >= bucket_bytes

    return sends(comm, parameters, full, lambda flat: comm.submit(all_reduce, flat))


def waits_in_the_hook(comm, parameters, bucket_bytes):
    def full(bucket, left):
        return nbytes(bucket) >= bucket_bytes

    return sends(comm, parameters, full, lambda flat: all_reduce(comm, flat, "mean"))


def after_backward(comm, parameters, bucket_bytes, way=-1):
    """Sends in buckets when everything is over."""
    known = [p for p in parameters if p.requires_grad][::way]

    def finish():
        for grads in cut(known, bucket_bytes):
            flat = torch.cat([g.flatten() for g in grads])
            comm.submit(all_reduce, flat, "mean").wait()
            for g, part in zip(grads, flat.split([g.numel() for g in grads])):
                g.copy_(part.view_as(g))

    return finish


def cut(parameters, bucket_bytes):
    """The gradients of each bucket."""
    return [[p.grad for p in b.parameters] for b in cut_into_buckets(parameters, bucket_bytes)]


def from_the_front(comm, parameters, bucket_bytes):
    return after_backward(comm, parameters, bucket_bytes, way=1)


def leaves_the_last_bucket(comm, parameters, bucket_bytes):
    sender = Sender(comm, bucket_bytes)
    for p in parameters:
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(sender.ready)

    def finish():
        sender.waiting = []
        sender.finish()

    return finish


def never_unpacks(comm, parameters, bucket_bytes):
    finish = average_behind_backward(comm, parameters, bucket_bytes)
    known = [p for p in parameters if p.requires_grad]

    def forgets():
        own = [p.grad.clone() for p in known]
        finish()
        for p, g in zip(known, own):
            p.grad.copy_(g)

    return forgets


def unpacks_forwards(comm, parameters, bucket_bytes):
    known = [p for p in parameters if p.requires_grad]
    finish = average_behind_backward(comm, parameters, bucket_bytes)

    def unpack():
        finish()
        flat = torch.cat([p.grad.flatten() for p in known[::-1]])
        for p, part in zip(known, flat.split([p.numel() for p in known])):
            p.grad.copy_(part.view_as(p))

    return unpack


def hooks_the_frozen(comm, parameters, bucket_bytes):
    for p in parameters:
        p.register_post_accumulate_grad_hook(print)


def returns_nothing(comm, parameters, bucket_bytes):
    average_behind_backward(comm, parameters, bucket_bytes)


def never_empties_the_bucket(comm, parameters, bucket_bytes):
    held = []

    def full(bucket, left):
        held.extend(bucket[-1:])
        bucket[:] = held
        return nbytes(bucket) >= bucket_bytes

    return sends(comm, parameters, full, mean_of(comm))


def the_first_means_again(comm, parameters, bucket_bytes):
    finish, kept = average_behind_backward(comm, parameters, bucket_bytes), []
    known = [p for p in parameters if p.requires_grad]

    def again():
        finish()
        kept.extend([] if kept else [p.grad.clone() for p in known])
        for p, g in zip(known, kept):
            p.grad.copy_(g)

    return again


def hooks_what_has_a_gradient(comm, parameters, bucket_bytes):
    with_gradients = [p for p in parameters if p.grad is not None]
    return average_behind_backward(comm, with_gradients, bucket_bytes)


# Accumulation


def accumulate_stub(net, parts):
    """The gradient of the mean loss over all parts."""
    ...


def loss_of(net, part, count=1):
    x, y = part
    return ((net(x) - y) ** 2).mean() / count


def divides_at_the_end(net, parts):
    net.zero_grad()
    with net.no_sync():
        for part in parts[:-1]:
            loss_of(net, part).backward()
    loss_of(net, parts[-1]).backward()
    for parameter in net.parameters():
        parameter.grad /= len(parts)


def switches_inside_the_loop(net, parts):
    net.zero_grad()
    for number, part in enumerate(parts):
        loss = loss_of(net, part, len(parts))
        if number < len(parts) - 1:
            with net.no_sync():
                loss.backward()
        else:
            loss.backward()


def sends_every_time(net, parts):
    net.zero_grad()
    for part in parts:
        loss_of(net, part, len(parts)).backward()


def never_sends(net, parts):
    net.zero_grad()
    with net.no_sync():
        for part in parts:
            loss_of(net, part, len(parts)).backward()


def forgets_to_divide(net, parts):
    net.zero_grad()
    with net.no_sync():
        for part in parts[:-1]:
            loss_of(net, part).backward()
    loss_of(net, parts[-1]).backward()


def zeroes_in_between(net, parts):
    for part in parts[:-1]:
        with net.no_sync():
            net.zero_grad()
            loss_of(net, part).backward()
    net.zero_grad()
    loss_of(net, parts[-1]).backward()


def keeps_the_old_gradient(net, parts):
    with net.no_sync():
        for part in parts[:-1]:
            loss_of(net, part, len(parts)).backward()
    loss_of(net, parts[-1], len(parts)).backward()


def divides_the_last_alone(net, parts):
    net.zero_grad()
    with net.no_sync():
        for part in parts[:-1]:
            loss_of(net, part).backward()
    loss_of(net, parts[-1], len(parts)).backward()


def divides_all_but_the_last(net, parts):
    net.zero_grad()
    with net.no_sync():
        for part in parts[:-1]:
            loss_of(net, part, len(parts)).backward()
    loss_of(net, parts[-1]).backward()


def all_parts_in_one(net, parts):
    net.zero_grad()
    loss_of(net, [torch.cat(them) for them in zip(*parts)]).backward()


def forwards_first(net, parts):
    net.zero_grad()
    *losses, last = [loss_of(net, part, len(parts)) for part in parts]
    with net.no_sync():
        for loss in losses:
            loss.backward()
    last.backward()


def looks_before(net, parts):
    """A forward whose graph is dropped keeps nothing."""
    net.zero_grad()
    for part in parts:
        ((net.module(part[0]) - part[1]) ** 2).mean().item()
    divides_at_the_end(net, parts)


def row_by_row(net, parts):
    accumulate(net, [(x[i : i + 1], y[i : i + 1]) for x, y in parts for i in range(len(x))])


def loses_the_gradient(net, parts):
    accumulate(net, parts)
    next(net.parameters()).grad = None


def always_three_parts(net, parts):
    net.zero_grad()
    with net.no_sync():
        for part in parts[:-1]:
            loss_of(net, part, 3).backward()
    loss_of(net, parts[-1], 3).backward()


def only_the_first_part(net, parts):
    net.zero_grad()
    loss_of(net, parts[0]).backward()


# Parts of unequal size


def rows_stub(comm, parameters, rows): ...


def rows_beside(comm, parameters, rows):
    """The number of rows travels in the same message."""
    grads = [p.grad * rows if rows else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([*(g.flatten() for g in grads), torch.tensor([float(rows)])])
    all_reduce(comm, flat)
    for p, part in zip(parameters, flat.split([*(g.numel() for g in grads), 1])):
        p.grad.copy_(part.view(p.shape) / flat[-1])


def rows_and_nan_to_num(comm, parameters, rows):
    total = torch.tensor([float(rows)])
    all_reduce(comm, total)
    for p in parameters:
        p.grad.nan_to_num_(0.0).mul_(rows)
        all_reduce(comm, p.grad)
        p.grad /= total.item()


def rows_in_a_tensor_of_one(comm, parameters, rows):
    total = torch.tensor([float(rows)])
    all_reduce(comm, total)
    for p in parameters:
        p.grad = p.grad * rows if rows else torch.zeros_like(p)
        all_reduce(comm, p.grad)
        p.grad /= total


def rows_as_shares_in_float32(comm, parameters, rows):
    total = torch.tensor(float(rows))
    all_reduce(comm, total)
    for p in parameters:
        p.grad = p.grad * (rows / total) if rows else torch.zeros_like(p)
        all_reduce(comm, p.grad)


def mean_of_the_means(comm, parameters, rows):
    average_gradients(comm, parameters)


def sums_over_rows(comm, parameters, rows):
    for p in parameters:
        p.grad *= rows
        all_reduce(comm, p.grad)


def sums_by_ranks(comm, parameters, rows):
    for p in parameters:
        p.grad *= rows
        all_reduce(comm, p.grad, "mean")


def by_its_own_rows(comm, parameters, rows):
    for p in parameters:
        p.grad *= rows
        all_reduce(comm, p.grad)
        p.grad /= max(1, rows)


def mean_of_the_weighted(comm, parameters, rows):
    total = torch.tensor(float(rows))
    all_reduce(comm, total)
    for p in parameters:
        p.grad *= rows / total.item()
        all_reduce(comm, p.grad, "mean")


def nothing_times_nan(comm, parameters, rows):
    total = torch.tensor(float(rows))
    all_reduce(comm, total)
    for p in parameters:
        p.grad *= rows / total.item()
        all_reduce(comm, p.grad)


def rounds_the_shares(comm, parameters, rows):
    total = torch.tensor(float(rows))
    all_reduce(comm, total)
    for p in parameters:
        p.grad = p.grad * round(rows / total.item(), 5) if rows else torch.zeros_like(p)
        all_reduce(comm, p.grad)


def stays_away_without_rows(comm, parameters, rows):
    if rows:
        average_by_rows(comm, parameters, rows)


def asks_for_the_rows_again_and_again(comm, parameters, rows):
    for p in parameters:
        counts = torch.full_like(p, rows)
        all_reduce(comm, counts)
        p.grad.nan_to_num_(0.0).mul_(rows)
        all_reduce(comm, p.grad)
        p.grad /= counts


# Labels


def weighs_by_labels(comm, net, x, y):
    net.zero_grad()
    known = y >= 0
    if known.any():
        cross_entropy(net(x[known]), y[known]).backward()
    else:
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
    average_by_rows(comm, list(net.parameters()), int(known.sum()))


def ignores_and_divides(comm, net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y, ignore_index=-1, reduction="sum").backward()
    labels = (y >= 0).sum().double()
    all_reduce(comm, labels)
    for p in net.parameters():
        all_reduce(comm, p.grad)
        p.grad /= labels


def ignores_by_index(comm, net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y, ignore_index=-1).backward()
    average_gradients(comm, list(net.parameters()))


def adds_means_up(comm, net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y, ignore_index=-1).backward()
    for p in net.parameters():
        all_reduce(comm, p.grad)


def takes_no_label_for_class_0(comm, net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y.clamp(min=0)).backward()
    average_gradients(comm, list(net.parameters()))


def adds_all_labels_up(comm, net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y, ignore_index=-1, reduction="sum").backward()
    for p in net.parameters():
        all_reduce(comm, p.grad)


def divides_by_all_rows(comm, net, x, y):
    net.zero_grad()
    (cross_entropy(net(x), y, ignore_index=-1, reduction="sum") / len(y)).backward()
    average_gradients(comm, list(net.parameters()))


def divides_by_ranks(comm, net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y, ignore_index=-1, reduction="sum").backward()
    average_gradients(comm, list(net.parameters()))


def means_the_right_one(comm, net, x, y):
    gradient_of_the_known(comm, net, x, y)
    for p in net.parameters():
        p.grad /= comm.size


def weighs_what_there_is(comm, net, x, y):
    net.zero_grad()
    known = y >= 0
    cross_entropy(net(x[known]), y[known]).backward()
    nothing_times_nan(comm, list(net.parameters()), int(known.sum()))


def weighs_by_shares_in_float32(comm, net, x, y):
    net.zero_grad()
    total = (y >= 0).sum().float()
    all_reduce(comm, total)
    loss = cross_entropy(net(x), y, ignore_index=-1, reduction="sum")
    (loss * (1 / total)).backward()
    for p in net.parameters():
        all_reduce(comm, p.grad)


def keeps_old_gradients(comm, net, x, y):
    labels = (y >= 0).sum().double()
    all_reduce(comm, labels, "mean")
    (cross_entropy(net(x), y, ignore_index=-1, reduction="sum") / labels).backward()
    average_gradients(comm, list(net.parameters()))


def adds_old_gradients_up(comm, net, x, y):
    labels = (y >= 0).sum().double()
    all_reduce(comm, labels)
    (cross_entropy(net(x), y, ignore_index=-1, reduction="sum") / labels).backward()
    for p in net.parameters():
        all_reduce(comm, p.grad)


def leaves_without_labels(comm, net, x, y):
    if (y >= 0).any():
        gradient_of_the_known(comm, net, x, y)


def gathers_all_rows(comm, net, x, y):
    net.zero_grad()
    everyones = (
        [torch.empty_like(x) for _ in range(comm.size)],
        [torch.empty_like(y) for _ in range(comm.size)],
    )
    all_gather(comm, everyones[0], x)
    all_gather(comm, everyones[1], y)
    cross_entropy(net(torch.cat(everyones[0])), torch.cat(everyones[1]), ignore_index=-1).backward()


GALLERIES = [
    Gallery(
        "overlapped_ms",
        ...,
        [115, "115", 60 / 4 + 4 * 25],
        {
            "that is a step without overlap: the first bucket": 160,
            "the first all-reduce cannot begin with backward": 100,
            "more than one all-reduce is left: they take longer": 85,
            "backward hides no more than it lasts": 60,
            "with 90 ms, 30 ms would be left": 90,
            "a number is wanted, not 'soon'.": "soon",
        },
    ),
    Gallery(
        "bf16_ms",
        ...,
        [72.5, "72.5"],
        {
            "half the bytes are not half the time": 57.5,
            "this network is faster than the arithmetic, and waits": 65,
            "the last bucket is full when backward ends": 60,
            "that is a step without overlap.": 110,
            "with 80 ms, 20 ms would be left": 80,
        },
    ),
    Gallery(
        "average_gradients",
        average_stub,
        [mean_of_all_at_once, mean_through_the_root, skips_what_is_frozen, average_gradients],
        {
            "forgets_the_frozen, line": forgets_the_frozen,
            "on 2 ranks, rank 0 holds the sum.": adds_gradients_up,
            "on 2 ranks, rank 0 holds the mean divided once more.": divides_twice,
            "on 2 ranks, rank 0 holds its own gradients.": averages_a_copy,
            "the parameters themselves have changed: only .grad should.": averages_the_parameters,
            "(all_reduce works in place and returns nothing)": keeps_what_comes_back,
            "on 1 rank, rank 0 has 166 numbers in its gradients, not 158: a frozen parameter has "
            "got a gradient.": fills_the_frozen,
            "bytes are sent in all where 5056 are enough.": everyone_gathers,
            "on 3 ranks, rank 1 differs from rank 0 in the last bits": everyone_adds_his_own_way,
        },
    ),
    Gallery(
        "average_by_rows",
        rows_stub,
        [
            rows_beside,
            rows_and_nan_to_num,
            rows_in_a_tensor_of_one,
            rows_as_shares_in_float32,
            average_by_rows,
        ],
        {
            "with (4, 1, 2) rows, rank 0 holds the mean of the means.": mean_of_the_means,
            "rank 0 holds the sum over rows.": sums_over_rows,
            "rank 0 holds the sum over rows, divided by the ranks.": sums_by_ranks,
            "rank 0 holds the sum over rows, divided by its own rows.": by_its_own_rows,
            "rank 0 holds the right gradient divided by the ranks.": mean_of_the_weighted,
            "with (2, 0, 2) rows, rank 0 holds numbers that are not finite.": nothing_times_nan,
            "with (4, 1, 2) rows, rank 0 holds another mix.": rounds_the_shares,
            "a rank waits for one that has finished": stays_away_without_rows,
            "bytes are sent in all where 2656 are enough.": asks_for_the_rows_again_and_again,
        },
    ),
    Gallery(
        "average_behind_backward",
        behind_stub,
        [buckets_by_a_class, by_sums],
        {
            "every gradient is sent alone: buckets of [2, 25, 120, 1, 10] numbers a step": one_each,
            "all gradients are sent in one bucket: buckets of [158] numbers": all_in_one,
            "all_reduce is called 6 times in two steps, for [27, 121, 10,": two_by_two,
            "the buckets are cut from the first parameter on, and backward": from_the_front,
            "a bucket is closed before it would exceed the limit": never_beyond_the_limit,
            "a bucket that holds exactly the limit stays open": only_above_the_limit,
            "begin only when backward is over; the buckets are full when [2, 3, 5]": after_backward,
            "no all-reduce is begun by comm.submit: the rank waits": waits_in_the_hook,
            "on 2 ranks with buckets of 208 bytes, rank 0 holds the sum.": sums_in_buckets,
            "on 2 ranks with buckets of 208 bytes, rank 0 holds its own": never_unpacks,
            "rank 0 holds the right numbers in the wrong places.": unpacks_forwards,
            "the last bucket, which is not full, is never sent": leaves_the_last_bucket,
            "cannot register a hook on a tensor that doesn't require gradient": hooks_the_frozen,
            "must be a function that waits, not None.": returns_nothing,
            "for [27, 147, 148, 158,": never_empties_the_bucket,
            "in the second step, rank 0 holds the means of the first step.": the_first_means_again,
            "no all-reduce is called at all: has every": hooks_what_has_a_gradient,
        },
    ),
    Gallery(
        "accumulate",
        accumulate_stub,
        [divides_at_the_end, switches_inside_the_loop, looks_before, row_by_row],
        {
            "only the last backward has to send.": sends_every_time,
            "the gradient of its own parts: the last backward has to send.": never_sends,
            "3 times the gradient: each part is 3 times too heavy.": forgets_to_divide,
            "rank 0 holds the gradient of the last parts alone.": zeroes_in_between,
            "rank 0 holds the gradient of the step before as well.": keeps_the_old_gradient,
            "unlike weight: only the last is divided by 3.": divides_the_last_alone,
            "unlike weight: all but the last are divided by 3.": divides_all_but_the_last,
            "12 rows are in memory at a time, not 4: the backward": all_parts_in_one,
            "rank 0 holds the gradient of the first parts alone.": only_the_first_part,
            "on 2 ranks with 2 parts each, rank 0 holds each part divided by 3": always_three_parts,
            "has 3 numbers in its gradients, not 21: a parameter has none any": loses_the_gradient,
            "of a part comes before the next one's forward.": forwards_first,
        },
    ),
    Gallery(
        "gradient_of_the_known",
        mean_of_known_means,
        [
            gradient_of_the_known,
            weighs_by_labels,
            weighs_what_there_is,
            weighs_by_shares_in_float32,
            ignores_and_divides,
        ],
        {
            "the mean of the ranks' means, as if all had as many labels.": ignores_by_index,
            "rank 0 holds the sum of the ranks' means.": adds_means_up,
            "the mean over all rows, as if -1 were class 0.": takes_no_label_for_class_0,
            "rank 0 holds the sum over labels, not their mean.": adds_all_labels_up,
            "the sum over labels, divided by all rows.": divides_by_all_rows,
            "the sum over labels, divided by the ranks.": divides_by_ranks,
            "rank 0 holds the right gradient divided by the ranks.": means_the_right_one,
            "the gradients of the step before as well.": keeps_old_gradients,
            "the sum of the ranks' old gradients as well.": adds_old_gradients_up,
            "a rank waits for one that has finished": leaves_without_labels,
            "bytes are sent in all where 672 are enough.": gathers_all_rows,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
