"""What to label, when to stop, a predictor in bytes, a mined test: answers that were likely."""

import copy
import io
import pickle
import statistics

import torch

from course.classroom.problems.p26_data_engine import (
    exported_bytes,
    go_on,
    margins_of,
    next_frames,
    next_frames_with_the_bug,
    next_to_label,
)
from course.collectives import all_gather, broadcast
from tests.classroom.gallery import Gallery, gallery_tests

# What to label


def next_stub(comm, chances, rows, k):
    """int64 [k]: which rows of the pool should be labelled next."""
    ...


def pairs(comm, chances, rows, k, score=lambda chances: margins_of(chances)):
    """(score, number) of the k best rows of each rank, the best first; short lists are filled."""
    scores = score(chances)
    first = scores.argsort()[:k]
    mine = torch.full((k, 2), torch.inf, dtype=torch.float64)
    mine[: len(first)] = torch.stack([scores[first], rows[first].double()], dim=1)
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, parts, mine)
    return sorted(torch.cat(parts).tolist())[:k]


def next_by_the_root(comm, chances, rows, k):
    mine = sorted(zip(margins_of(chances).tolist(), rows.tolist()))[:k]
    table = torch.tensor(mine + [(torch.inf, -1)] * (k - len(mine)), dtype=torch.float64)
    best = torch.empty(k, dtype=torch.int64)
    if comm.rank:
        comm.send(table, 0)
    else:
        tables = [table.tolist()]
        for rank in range(1, comm.size):
            other = torch.empty_like(table)
            comm.recv(other, rank)
            tables.append(other.tolist())
        found = sorted(pair for each in tables for pair in each)[:k]
        best = torch.tensor([int(number) for _, number in found])
    broadcast(comm, best)
    return best


def each_its_own(comm, chances, rows, k):
    return rows[margins_of(chances).argsort()[:k]]


def the_whole_pool(comm, chances, rows, k):
    counts = [torch.empty(1, dtype=torch.int64) for _ in range(comm.size)]
    all_gather(comm, counts, torch.tensor([len(rows)]))
    most = max(int(count) for count in counts)
    mine = torch.full((most, 2), torch.inf, dtype=torch.float64)
    mine[: len(rows)] = torch.stack([margins_of(chances), rows.double()], dim=1)
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, parts, mine)
    table = torch.cat(parts)
    return table[table[:, 0].argsort()[:k], 1].long()


def with_score(score):
    def choice(comm, chances, rows, k):
        return [int(number) for _, number in pairs(comm, chances, rows, k, score)]

    return choice


def the_surest(comm, chances, rows, k):
    return with_score(lambda chances: -margins_of(chances))(comm, chances, rows, k)


def by_entropy(comm, chances, rows, k):
    return with_score(lambda c: (c * c.log()).sum(dim=1))(comm, chances, rows, k)


def by_the_likeliest(comm, chances, rows, k):
    return with_score(lambda chances: chances.max(dim=1).values)(comm, chances, rows, k)


def by_two_columns(comm, chances, rows, k):
    return with_score(lambda c: (c[:, 0] - c[:, 1]).abs())(comm, chances, rows, k)


def by_the_smallest_two(comm, chances, rows, k):
    def score(chances):
        worst = chances.topk(2, dim=1, largest=False).values
        return worst[:, 1] - worst[:, 0]

    return with_score(score)(comm, chances, rows, k)


def most_confused_last(comm, chances, rows, k):
    return next_to_label(comm, chances, rows, k).flip(0)


def places_for_numbers(comm, chances, rows, k):
    return next_to_label(comm, chances, 100_000 + torch.arange(len(rows)), k)


def k_of_each(comm, chances, rows, k):
    found = next_to_label(comm, chances, rows, k)
    return found[: k // 2]


def next_not_returned(comm, chances, rows, k):
    next_to_label(comm, chances, rows, k)


def shapes_that_differ(comm, chances, rows, k):
    margins = margins_of(chances)
    first = margins.argsort()[:k]
    mine = torch.stack([margins[first], rows[first].double()], dim=1)
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, parts, mine)
    table = torch.cat(parts)
    return table[table[:, 0].argsort()[:k], 1].long()


# When to stop


def go_on_stub(labels, errors, label_price, error_price):
    """Whether to buy another round: True or False."""
    ...


def by_a_line(labels, errors, label_price, error_price):
    """The slope of a straight line through the last six rounds."""
    if len(labels) < 6:
        return True
    n, e = labels[-6:], errors[-6:]
    middle = sum(n) / 6
    slope = sum((a - middle) * b for a, b in zip(n, e)) / sum((a - middle) ** 2 for a in n)
    return -slope * error_price > label_price


def with_patience(labels, errors, label_price, error_price):
    bill = [label_price * n + error_price * e for n, e in zip(labels, errors)]
    return len(bill) - 1 - bill.index(min(bill)) < 3


def above_a_level(labels, errors, label_price, error_price):
    return min(errors[-3:]) * error_price > labels[-1] * label_price


def by_a_test_of_means(labels, errors, label_price, error_price):
    """As long as it is not clear that the last four rounds gained less than they cost."""
    if len(errors) < 8:
        return True
    before, last = errors[-8:-4], errors[-4:]
    noise = ((statistics.variance(before) + statistics.variance(last)) / 4) ** 0.5
    gain = (statistics.mean(before) - statistics.mean(last)) * error_price
    return (labels[-1] - labels[-5]) * label_price - gain < 0.5 * noise * error_price


def without_the_price_of_a_label(labels, errors, label_price, error_price):
    gain = (sum(errors[-6:-3]) - sum(errors[-3:])) / 3
    return len(errors) < 6 or gain * error_price > labels[-1] - labels[-4]


def always_on(labels, errors, label_price, error_price):
    return True


def never_on(labels, errors, label_price, error_price):
    return len(labels) < 1


def one_round_decides(labels, errors, label_price, error_price):
    if len(labels) < 2:
        return True
    return (errors[-2] - errors[-1]) * error_price > (labels[-1] - labels[-2]) * label_price


def until_no_better(labels, errors, label_price, error_price):
    return len(errors) < 6 or min(errors[-5:]) < min(errors[:-5])


def as_if_labels_were_cheap(labels, errors, label_price, error_price):
    if len(errors) < 6:
        return True
    return (sum(errors[-6:-3]) - sum(errors[-3:])) / 3 * error_price > label_price


def by_the_price_alone(labels, errors, label_price, error_price):
    return labels[-1] ** 2 * label_price < 20 * error_price * labels[0]


def only_says_no(labels, errors, label_price, error_price):
    if len(errors) > 10:
        return False


# The predictor in bytes


def bytes_stub(net, x):
    """The bytes of the exported program of `net`, for any number of images."""
    ...


def of_a_copy(net, x):
    program = torch.export.export(
        copy.deepcopy(net).eval(), (x,), dynamic_shapes=[{0: torch.export.Dim.DYNAMIC}]
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def saved(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def left_in_eval(net, x):
    batch = torch.export.Dim("batch", min=1)
    return saved(torch.export.export(net.eval(), (x,), dynamic_shapes=({0: batch},)))


def all_back_to_training(net, x):
    file = left_in_eval(net, x)
    net.train()
    return file


def as_it_is(net, x):
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(copy.deepcopy(net), (x,), dynamic_shapes=({0: batch},))
    return saved(program)


def for_four_images(net, x):
    return saved(torch.export.export(copy.deepcopy(net).eval(), (x,)))


def the_program_itself(net, x):
    return torch.export.export(copy.deepcopy(net).eval(), (x,))


def pickled(net, x):
    return pickle.dumps(copy.deepcopy(net).eval())


def tried_before(net, x):
    net(x)
    return exported_bytes(net, x)


def without_normalisation(net, x):
    other = copy.deepcopy(net).eval()
    other[1].reset_running_stats()
    return exported_bytes(other, x)


# The mined test


def only_the_test(chances, drives, labelled, test, k):
    best = chances.topk(2, dim=1).values
    margins = best[:, 0] - best[:, 1]
    margins[labelled] = torch.inf
    margins[test] = torch.inf
    return margins.argsort()[:k]


def frames_one_by_one(chances, drives, labelled, test, k):
    closed = {int(drives[row]) for row in test}
    best = chances.sort(dim=1, descending=True).values
    order = (best[:, 0] - best[:, 1]).argsort().tolist()
    known = set(labelled.tolist())
    return [r for r in order if r not in known and int(drives[r]) not in closed][:k]


def the_test_alone(chances, drives, labelled, test, k):
    return test[margins_of(chances[test]).argsort()[:k]]


def labels_forgotten(chances, drives, labelled, test, k):
    return next_frames(chances, drives, labelled[:0], test, k)


def known_drives_closed(chances, drives, labelled, test, k):
    return next_frames(chances, drives, labelled, torch.cat([test, labelled]), k)


def in_another_order(chances, drives, labelled, test, k):
    return next_frames(chances, drives, labelled, test, k).sort().values


def too_few(chances, drives, labelled, test, k):
    rows = next_frames_with_the_bug(chances, drives, labelled, test, k)
    return rows[~torch.isin(drives[rows], drives[test])][: k - 1]


def drives_spoiled(chances, drives, labelled, test, k):
    rows = next_frames(chances, drives, labelled, test, k)
    drives[test] = -1
    return rows


def frames_not_returned(chances, drives, labelled, test, k):
    next_frames(chances, drives, labelled, test, k)


GALLERIES = [
    Gallery("next_to_label", next_stub, [next_to_label, next_by_the_root], {
        "all must train on the same labels": each_its_own,
        "are enough. The k best of all are among": the_whole_pool,
        "the predictor is sure about them": the_surest,
        "those have the largest entropy": by_entropy,
        "its lead over the second": by_the_likeliest,
        "the first two columns need not be": by_two_columns,
        "the largest probability of a row less its second": by_the_smallest_two,
        "the most confused comes first": most_confused_last,
        "not places": places_for_numbers,
        "4 rows are wanted, and 2 came": k_of_each,
        "nothing came back": next_not_returned,
        "the ranks do not do the same thing": shapes_that_differ,
    }),
    Gallery("go_on", go_on_stub, [
        go_on, by_a_line, with_patience, above_a_level, by_a_test_of_means,
    ], {
        "it never stops": always_on,
        "it always stops after the first round": never_on,
        "too early. One bad round means little": one_round_decides,
        "whatever an error costs": until_no_better,
        "whatever the errors are": by_the_price_alone,
        "whatever a label costs": without_the_price_of_a_label,
        "too late. What do the labels of a round cost": as_if_labels_were_cheap,
        "does the function return True or False in every case": only_says_no,
    }),
    Gallery("exported_bytes", bytes_stub, [exported_bytes, of_a_copy], {
        "put every module's back": left_in_eval,
        "the network is in another mode than before": all_back_to_training,
        "dropout is still at work": as_it_is,
        "say which axis may differ": for_four_images,
        "bytes are wanted": the_program_itself,
        "the bytes hold no exported program": pickled,
        "the network has changed": tried_before,
        "otherwise than the network in eval mode": without_normalisation,
    }),
    Gallery("next_frames", next_frames_with_the_bug, [next_frames, frames_one_by_one], {
        "is one of the test set": the_test_alone,
        "from which the test has frames": only_the_test,
        "has a label already": labels_forgotten,
        "some frames have labels is not closed": known_drives_closed,
        "not the most confused, in order": in_another_order,
        "10 frames are wanted": too_few,
        "what the function was given has changed": drives_spoiled,
        "nothing came back": frames_not_returned,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
