"""A mean of gradients, buckets, accumulation, uneven parts, missing labels: likely answers."""

import torch
from torch.nn.functional import cross_entropy

from course.classroom.problems.p12_data_parallel import (
    accumulate,
    average_by_rows,
    average_gradients,
    gradient_of_all_that_is_known,
    gradient_of_the_known,
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


def buckets_stub(comm, parameters, bucket_bytes):
    pass


def cut(parameters, bucket_bytes):
    """The gradients of each bucket; those that are None are in none."""
    known = [p for p in parameters if p.grad is not None]
    return [[p.grad for p in bucket.parameters] for bucket in cut_into_buckets(known, bucket_bytes)]


def send_bucket(comm, grads, op="mean"):
    flat = torch.cat([g.flatten() for g in grads])
    all_reduce(comm, flat, op)
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view(g.shape))


def buckets_of_the_package(comm, parameters, bucket_bytes):
    for bucket in cut(parameters[::-1], bucket_bytes):
        send_bucket(comm, bucket)


def buckets_cut_first(comm, parameters, bucket_bytes):
    buckets = [[]]
    for parameter in parameters[::-1]:
        if parameter.grad is None:
            continue
        if sum(g.nbytes for g in buckets[-1]) >= bucket_bytes:
            buckets.append([])
        buckets[-1].append(parameter.grad)
    for bucket in buckets:
        send_bucket(comm, bucket)


def one_each(comm, parameters, bucket_bytes):
    average_gradients(comm, parameters)


def all_in_one(comm, parameters, bucket_bytes):
    send_bucket(comm, [p.grad for p in parameters[::-1] if p.grad is not None])


def from_the_front(comm, parameters, bucket_bytes):
    for bucket in cut(parameters, bucket_bytes):
        send_bucket(comm, bucket)


def the_right_cut_in_another_order(comm, parameters, bucket_bytes):
    for bucket in cut(parameters[::-1], bucket_bytes)[::-1]:
        send_bucket(comm, bucket)


def never_beyond_the_limit(comm, parameters, bucket_bytes):
    bucket = []
    for (gradient,) in cut(parameters[::-1], 1):
        if bucket and sum(g.nbytes for g in [*bucket, gradient]) > bucket_bytes:
            send_bucket(comm, bucket)
            bucket = []
        bucket.append(gradient)
    send_bucket(comm, bucket)


def only_above_the_limit(comm, parameters, bucket_bytes):
    for bucket in cut(parameters[::-1], bucket_bytes + 1):
        send_bucket(comm, bucket)


def leaves_the_last_bucket(comm, parameters, bucket_bytes):
    for bucket in cut(parameters[::-1], bucket_bytes):
        if sum(g.nbytes for g in bucket) >= bucket_bytes:
            send_bucket(comm, bucket)


def two_by_two(comm, parameters, bucket_bytes):
    grads = [p.grad for p in parameters[::-1] if p.grad is not None]
    for first in range(0, len(grads), 2):
        send_bucket(comm, grads[first : first + 2])


def sums_in_buckets(comm, parameters, bucket_bytes):
    for bucket in cut(parameters[::-1], bucket_bytes):
        send_bucket(comm, bucket, "sum")


def never_unpacks(comm, parameters, bucket_bytes):
    for bucket in cut(parameters[::-1], bucket_bytes):
        flat = torch.cat([g.flatten() for g in bucket])
        all_reduce(comm, flat, "mean")


def unpacks_forwards(comm, parameters, bucket_bytes):
    for grads in cut(parameters[::-1], bucket_bytes):
        flat = torch.cat([g.flatten() for g in grads])
        all_reduce(comm, flat, "mean")
        for g, part in zip(grads[::-1], flat.split([g.numel() for g in grads[::-1]])):
            g.copy_(part.view(g.shape))


def buckets_with_the_frozen(comm, parameters, bucket_bytes):
    for bucket in cut_into_buckets(parameters[::-1], bucket_bytes):
        grads = [p.grad for p in bucket.parameters]
        flat = torch.cat([g.flatten() for g in grads])
        all_reduce(comm, flat, "mean")
        for g, part in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(part.view(g.shape))


def fills_the_frozen_too(comm, parameters, bucket_bytes):
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    buckets_of_the_package(comm, parameters, bucket_bytes)


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
    gradient_of_all_that_is_known(comm, net, x, y)
    for p in net.parameters():
        p.grad /= comm.size


def weighs_what_there_is(comm, net, x, y):
    net.zero_grad()
    known = y >= 0
    cross_entropy(net(x[known]), y[known]).backward()
    nothing_times_nan(comm, list(net.parameters()), int(known.sum()))


def leaves_without_labels(comm, net, x, y):
    if (y >= 0).any():
        gradient_of_all_that_is_known(comm, net, x, y)


def gathers_all_rows(comm, net, x, y):
    everyones = (
        [torch.empty_like(x) for _ in range(comm.size)],
        [torch.empty_like(y) for _ in range(comm.size)],
    )
    all_gather(comm, everyones[0], x)
    all_gather(comm, everyones[1], y)
    cross_entropy(net(torch.cat(everyones[0])), torch.cat(everyones[1]), ignore_index=-1).backward()


GALLERIES = [
    Gallery(
        "average_gradients",
        average_stub,
        [mean_of_all_at_once, mean_through_the_root, average_gradients],
        {
            "forgets_the_frozen, line": forgets_the_frozen,
            "on 2 ranks, rank 0 holds the sum.": adds_gradients_up,
            "on 2 ranks, rank 0 holds the mean divided once more.": divides_twice,
            "on 2 ranks, rank 0 holds its own gradients.": averages_a_copy,
            "the parameters themselves have changed: only .grad should.": averages_the_parameters,
            "on 1 rank, rank 0 has 166 numbers in its gradients, not 158: a frozen parameter has "
            "got a gradient.": fills_the_frozen,
            "bytes are sent in all where 5056 are enough.": everyone_gathers,
            "on 3 ranks, rank 1 differs from rank 0 in the last bits": everyone_adds_his_own_way,
        },
    ),
    Gallery(
        "average_in_buckets",
        buckets_stub,
        [buckets_of_the_package, buckets_cut_first],
        {
            "calls: 5, of [10, 1, 120, 25, 2] numbers of 8 bytes; wanted: 3, of [27, 120, 11].": (
                one_each
            ),
            "calls: 1, of [158] numbers": all_in_one,
            "calls: 2, of [131, 27] numbers": from_the_front,
            "calls: 4, of [2, 25, 120, 11] numbers": never_beyond_the_limit,
            "of 216 bytes, all_reduce calls: 2, of [147, 11] numbers": only_above_the_limit,
            "calls: 2, of [27, 120] numbers": leaves_the_last_bucket,
            "calls: 3, of [27, 121, 10] numbers": two_by_two,
            "buckets of [11, 120, 27] numbers were sent": the_right_cut_in_another_order,
            "'NoneType' object has no attribute 'flatten'": buckets_with_the_frozen,
            "166 numbers in its gradients, not 158: a frozen parameter": fills_the_frozen_too,
            "on 2 ranks with buckets of 208 bytes, rank 0 holds the sum.": sums_in_buckets,
            "on 2 ranks with buckets of 208 bytes, rank 0 holds its own": never_unpacks,
            "on 1 rank with buckets of 208 bytes, rank 0 holds another mix.": unpacks_forwards,
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
            "has 3 numbers in its gradients, not 21: a parameter has none.": loses_the_gradient,
            "of a part comes before the next one's forward.": forwards_first,
        },
    ),
    Gallery(
        "average_by_rows",
        rows_stub,
        [rows_beside, rows_and_nan_to_num, average_by_rows],
        {
            "with (3, 1, 2) rows, rank 0 holds the mean of the means.": mean_of_the_means,
            "rank 0 holds the sum over rows.": sums_over_rows,
            "rank 0 holds the sum over rows, divided by the ranks.": sums_by_ranks,
            "rank 0 holds the sum over rows, divided by its own rows.": by_its_own_rows,
            "rank 0 holds the right gradient divided by the ranks.": mean_of_the_weighted,
            "with (2, 0, 1) rows, rank 0 holds numbers that are not finite.": nothing_times_nan,
            "a rank waits for one that has finished": stays_away_without_rows,
            "bytes are sent in all where 2656 are enough.": asks_for_the_rows_again_and_again,
        },
    ),
    Gallery(
        "gradient_of_the_known",
        gradient_of_the_known,
        [weighs_by_labels, weighs_what_there_is, ignores_and_divides],
        {
            "the mean of the ranks' means, as if all had as many labels.": ignores_by_index,
            "rank 0 holds the sum of the ranks' means.": adds_means_up,
            "the mean over all rows, as if -1 were class 0.": takes_no_label_for_class_0,
            "rank 0 holds the sum over labels, not their mean.": adds_all_labels_up,
            "the sum over labels, divided by all rows.": divides_by_all_rows,
            "the sum over labels, divided by the ranks.": divides_by_ranks,
            "rank 0 holds the right gradient divided by the ranks.": means_the_right_one,
            "a rank waits for one that has finished": leaves_without_labels,
            "bytes are sent in all where 672 are enough.": gathers_all_rows,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
