"""A layer backward, a stable loss, a fair split and a repaired loop: answers that were likely."""

import torch
from torch.nn.functional import cross_entropy, one_hot

from course.classroom.problems import p02_networks as p02
from tests.classroom.gallery import Gallery, gallery_tests

# The layer


def layer_stub(x, W, h, g):
    """Slopes in x, W and c of a layer h = max(x @ W + c, 0), from the slopes g in h."""
    ...


def layer_in_loops(x, W, h, g):
    gx, gW, gc = torch.zeros_like(x), torch.zeros_like(W), torch.zeros_like(g[0])
    for image in range(len(x)):
        for unit in range(g.shape[1]):
            if h[image, unit] > 0:
                gc[unit] += g[image, unit]
                gW[:, unit] += x[image] * g[image, unit]
                gx[image] += W[:, unit] * g[image, unit]
    return gx, gW, gc


def layer_by_outer_products(x, W, h, g):
    g = torch.where(h > 0, g, 0.0)
    return [torch.einsum("bo,io->bi", g, W), (x[:, :, None] * g[:, None]).sum(dim=0), g.sum(0)]


def layer_without_its_activation(x, W, h, g):
    return g @ W.T, x.T @ g, g.sum(dim=0)


def layer_without_its_biases(x, W, h, g):
    g = g * (x @ W > 0)
    return g @ W.T, x.T @ g, g.sum(dim=0)


def layer_of_the_units_that_are_off(x, W, h, g):
    g = g * (h == 0)
    return g @ W.T, x.T @ g, g.sum(dim=0)


def layer_times_its_values(x, W, h, g):
    g = g * h
    return g @ W.T, x.T @ g, g.sum(dim=0)


def layer_averaged(x, W, h, g):
    g = g * (h > 0)
    return g @ W.T, x.T @ g / len(x), g.mean(dim=0)


def layer_with_a_minus(x, W, h, g):
    g = -g * (h > 0)
    return g @ W.T, x.T @ g, g.sum(dim=0)


def layer_with_a_bias_behind(x, W, h, g):
    on = g * (h > 0)
    return on @ W.T, x.T @ on, g.sum(dim=0)


def layer_by_autograd(x, W, h, g):
    x, W = x.requires_grad_(), W.requires_grad_()
    c = torch.zeros(W.shape[1], dtype=W.dtype, requires_grad=True)
    return torch.autograd.grad((x @ W + c).clamp(min=0), (x, W, c), g)


def layer_of_weights_alone(x, W, h, g):
    return x.T @ (g * (h > 0))


def layer_transposed(x, W, h, g):
    g = g * (h > 0)
    return g @ W.T, g.T @ x, g.sum(dim=0)


def layer_of_mixed_products(x, W, h, g):
    return g @ W @ g


def layer_half_right(x, W, h, g):
    g = g * (h > 0)
    return 2 * g @ W.T, x.T @ g, g.sum(dim=0)


def layer_in_place(x, W, h, g):
    g *= h > 0
    return g @ W.T, x.T @ g, g.sum(dim=0)


def layer_that_only_prints(x, W, h, g):
    layer_in_loops(x, W, h, g)[0].tolist()


# The loss


def entropy_stub(scores, labels):
    """The mean cross-entropy, and its slopes in the scores."""
    pass


def entropy_of_torch(scores, labels):
    y = one_hot(labels, scores.shape[1])
    return cross_entropy(scores, labels), (scores.softmax(dim=1) - y) / len(y)


def entropy_row_by_row(scores, labels):
    losses, slopes = [], []
    for s, label in zip(scores.tolist(), labels.tolist(), strict=True):
        s = torch.tensor(s, dtype=torch.float64)
        s = s - max(s)
        losses.append(float(s.exp().sum().log() - s[label]))
        p = s.exp() / s.exp().sum()
        p[label] -= 1
        slopes.append((p / len(labels)).tolist())
    return sum(losses) / len(losses), slopes


def entropy_naive(scores, labels):
    p = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
    y = one_hot(labels, scores.shape[1])
    return -(p[torch.arange(len(y)), labels]).log().mean(), (p - y) / len(y)


def entropy_of_a_rounded_p(scores, labels):
    p = scores.softmax(dim=1)
    y = one_hot(labels, scores.shape[1])
    return -p[torch.arange(len(y)), labels].log().mean(), (p - y) / len(y)


def entropy_of_a_clipped_p(scores, labels):
    _, slopes = entropy_of_torch(scores, labels)
    p = scores.softmax(dim=1)[torch.arange(len(labels)), labels]
    return -p.clamp(min=1e-30).log().mean(), slopes


def entropy_of_one_largest(scores, labels):
    scores = scores - scores.max()
    log_p = scores - scores.exp().sum(dim=1, keepdim=True).log()
    y = one_hot(labels, scores.shape[1])
    return -log_p[torch.arange(len(y)), labels].mean(), (log_p.exp() - y) / len(y)


def entropy_summed(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return loss * len(labels), slopes * len(labels)


def entropy_of_one_image(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return loss, slopes * len(labels)


def entropy_with_a_summed_loss(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return loss * len(labels), slopes


def entropy_uphill(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return loss, -slopes


def entropy_upside_down(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return -loss, -slopes


def entropy_that_is_negative(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return -loss, slopes


def entropy_with_slopes_p(scores, labels):
    return cross_entropy(scores, labels), scores.softmax(dim=1) / len(labels)


def entropy_with_slopes_of_a_sum(scores, labels):
    return cross_entropy(scores, labels), scores.softmax(dim=1)


def entropy_of_the_mean_p(scores, labels):
    _, slopes = entropy_of_torch(scores, labels)
    p = scores.softmax(dim=1)[torch.arange(len(labels)), labels]
    return -p.mean().log(), slopes


def entropy_in_bits(scores, labels):
    loss, slopes = entropy_of_torch(scores, labels)
    return loss / torch.log(torch.tensor(2.0)), slopes


def entropy_over_the_images(scores, labels):
    log_p, y = scores.log_softmax(dim=0), one_hot(labels, scores.shape[1])
    return -(log_p * y).sum() / len(y), (log_p.exp() - y) / len(y)


def entropy_of_the_largest_score(scores, labels):
    _, slopes = entropy_of_torch(scores, labels)
    return -scores.log_softmax(dim=1).max(dim=1).values.mean(), slopes


def entropy_of_each(scores, labels):
    _, slopes = entropy_of_torch(scores, labels)
    return cross_entropy(scores, labels, reduction="none"), slopes


def entropy_without_slopes(scores, labels):
    return cross_entropy(scores, labels)


def entropy_in_place(scores, labels):
    scores -= scores.max(dim=1, keepdim=True).values
    return entropy_of_torch(scores, labels)


# The split


def split_stub(writers, seed):
    """Row numbers of training, validation and test."""
    raise NotImplementedError


def split_in_python(writers, seed):
    import random

    people = sorted(set(writers.tolist()))
    random.Random(seed).shuffle(people)
    fifth = len(people) // 5
    parts = people[2 * fifth :], people[:fifth], people[fifth : 2 * fifth]
    return [[row for row, who in enumerate(writers.tolist()) if who in part] for part in parts]


def split_as_masks(writers, seed):
    torch.manual_seed(seed)
    people = writers.unique()
    people = people[torch.randperm(len(people))]
    fifth = len(people) // 5
    validation, test = (torch.isin(writers, p) for p in people[: 2 * fifth].split(fifth))
    return ~(validation | test), validation, test


def drawn_rows(writers, seed):
    rows = torch.randperm(len(writers), generator=torch.Generator().manual_seed(seed))
    fifth = len(rows) // 5
    return rows[2 * fifth :], rows[:fifth], rows[fifth : 2 * fifth]


def split_without_a_test_of_its_own(writers, seed):
    training, validation, _ = p02.fair_split(writers, seed)
    return training, validation, validation


def split_of_validation_by_rows(writers, seed):
    training, validation, test = p02.fair_split(writers, seed)
    both = torch.cat([training, validation])
    both = both[torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))]
    return both[len(validation) :], both[: len(validation)], test


def split_of_the_rest_by_rows(writers, seed):
    training, validation, test = p02.fair_split(writers, seed)
    both = torch.cat([test, validation])
    both = both[torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))]
    return training, both[: len(validation)], both[len(validation) :]


def split_by_order(writers, seed):
    people = writers.unique()
    fifth = len(people) // 5
    parts = people[2 * fifth :], people[:fifth], people[fifth : 2 * fifth]
    return tuple(torch.isin(writers, part).nonzero()[:, 0] for part in parts)


def split_by_luck(writers, seed):
    people = writers.unique()
    people = people[torch.randperm(len(people))]
    fifth = len(people) // 5
    parts = people[2 * fifth :], people[:fifth], people[fifth : 2 * fifth]
    return tuple(torch.isin(writers, part).nonzero()[:, 0] for part in parts)


def split_with_a_fixed_test(writers, seed):
    people = writers.unique()
    fifth = len(people) // 5
    drawn = torch.randperm(len(people) - fifth, generator=torch.Generator().manual_seed(seed))
    rest = people[fifth:][drawn]
    parts = rest[fifth:], rest[:fifth], people[:fifth]
    return tuple(torch.isin(writers, part).nonzero()[:, 0] for part in parts)


def split_of_sorted_images(writers, seed):
    people = writers.unique()
    drawn = torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))
    rows = drawn[torch.searchsorted(people, writers)].argsort(stable=True)
    fifth = len(rows) // 5
    return rows[2 * fifth :], rows[:fifth], rows[fifth : 2 * fifth]


def split_by_remainder(writers, seed):
    key = (writers + seed) % 5
    return (key > 1).nonzero()[:, 0], (key == 0).nonzero()[:, 0], (key == 1).nonzero()[:, 0]


def split_by_rolling(writers, seed):
    people = writers.unique().roll(seed)
    fifth = len(people) // 5
    parts = people[2 * fifth :], people[:fifth], people[fifth : 2 * fifth]
    return tuple(torch.isin(writers, part).nonzero()[:, 0] for part in parts)


def split_that_draws_the_test_alone(writers, seed):
    people = writers.unique()
    people = people[torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))]
    fifth = len(people) // 5
    test, rest = people[:fifth], people[fifth:].sort().values
    return tuple(
        torch.isin(writers, part).nonzero()[:, 0] for part in (rest[fifth:], rest[:fifth], test)
    )


def split_into_sets(writers, seed):
    return tuple(set(part.tolist()) for part in p02.fair_split(writers, seed))


def split_with_an_empty_list(writers, seed):
    training, validation, test = (part.tolist() for part in p02.fair_split(writers, seed))
    return training + test, validation, []


def split_the_other_way_round(writers, seed):
    training, validation, test = p02.fair_split(writers, seed)
    return test, validation, training


def split_in_thirds(writers, seed):
    people = writers.unique()
    people = people[torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))]
    return tuple(torch.isin(writers, p).nonzero()[:, 0] for p in people.tensor_split(3))


def split_that_loses_rows(writers, seed):
    training, validation, test = p02.fair_split(writers, seed)
    return training[1:], validation, test


def split_into_people(writers, seed):
    people = writers.unique()
    fifth = len(people) // 5
    return people[2 * fifth :] + 1000, people[:fifth], people[fifth : 2 * fifth]


def split_in_two(writers, seed):
    training, _, test = p02.fair_split(writers, seed)
    return training, test


def split_without_validation(writers, seed):
    training, validation, test = p02.fair_split(writers, seed)
    return torch.cat([training, validation]), validation[:0], test


def split_into_shares(writers, seed):
    return 0.6, 0.2, 0.2


def split_that_only_prints(writers, seed):
    p02.fair_split(writers, seed)


# The loop


def training_by_hand(net, batches, rate):
    losses = []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        slopes = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(net.parameters(), slopes, strict=True):
                parameter -= rate * slope
        losses.append(loss.item())
    return losses


def training_cleared_at_the_end(net, batches, rate):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        net.zero_grad()
        losses.append(loss)
    return losses


def training_cleared_once(net, batches, rate):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    optimizer.zero_grad()
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training_cleared_too_late(net, batches, rate):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training_cleared_in_one_layer(net, batches, rate):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        net[0].zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training_cleared_in_the_last_layer(net, batches, rate):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        net[-1].zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training_that_returns_too_early(net, batches, rate):
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return losses


def training_at_smaller_and_smaller_rates(net, batches, rate):
    losses = []
    for step, batch in enumerate(batches, 1):
        losses += p02.train_on_batches(net, [batch], rate / step)
    return losses


def training_without_losses(net, batches, rate):
    p02.train_on_batches(net, batches, rate)


def training_with_losses_after_the_step(net, batches, rate):
    losses = []
    for x, y in batches:
        p02.train_on_batches(net, [(x, y)], rate)
        losses.append(cross_entropy(net(x), y).item())
    return losses


GALLERIES = [
    Gallery(
        "layer_backward",
        layer_stub,
        [p02.layer_backward, layer_in_loops, layer_by_outer_products],
        {
            "where a unit is off (its h is 0), nothing comes back": layer_without_its_activation,
            "x @ W lacks the biases": layer_without_its_biases,
            "the units that are on are shut": layer_of_the_units_that_are_off,
            "is 1 where the unit is on, however large h is.": layer_times_its_values,
            "add up over the images, do not divide again.": layer_averaged,
            "the signs are wrong": layer_with_a_minus,
            "the bias stands before max(z, 0), too": layer_with_a_bias_behind,
            "autograd is at work here": layer_by_autograd,
            "3 things must come back, in this order: x, W, c.": layer_of_weights_alone,
            "the part for W has shape [5, 3], not [3, 5].": layer_transposed,
            "mat1 and mat2 shapes cannot be multiplied": layer_of_mixed_products,
            "wrong: x; right: W and c.": layer_half_right,
            "what the function was given has changed": layer_in_place,
            "nothing came back": layer_that_only_prints,
        },
    ),
    Gallery(
        "stable_cross_entropy",
        entropy_stub,
        [p02.stable_cross_entropy, entropy_of_torch, entropy_row_by_row],
        {
            "exp is infinite": entropy_naive,
            "so small that it is rounded to 0": entropy_of_a_rounded_p,
            "each row has a largest score of its own.": entropy_of_one_largest,
            "loss and slopes are sums over the images": entropy_summed,
            "its slopes are not yet.": entropy_of_one_image,
            "and the loss is a sum over the images.": entropy_with_a_summed_loss,
            "the slopes have the wrong sign": entropy_uphill,
            "everything has the wrong sign": entropy_upside_down,
            "the loss is minus the mean of log p.": entropy_that_is_negative,
            "in the true class the slope is p - 1.": entropy_with_slopes_p,
            "in the true class the slope is p - 1, and the mean": entropy_with_slopes_of_a_sum,
            "each image's p first, then the mean.": entropy_of_the_mean_p,
            "this is in bits": entropy_in_bits,
            "softmax runs over the classes of an image": entropy_over_the_images,
            "wrong: the loss; right: the slopes.": entropy_of_the_largest_score,
            "the part for the loss has shape [], not [5].": entropy_of_each,
            "2 things must come back": entropy_without_slopes,
            "what the function was given has changed": entropy_in_place,
        },
    ),
    Gallery(
        "fair_split",
        split_stub,
        [p02.fair_split, split_in_python, split_as_masks],
        {
            "in the training set and in the test set": drawn_rows,
            "stands in the parts more than once.": split_without_a_test_of_its_own,
            "in the training set and in the validation set": split_of_validation_by_rows,
            "in the validation set and in the test set": split_of_the_rest_by_rows,
            "the same people are in the validation set whatever the seed": split_by_order,
            "the same people are in the test set whatever the seed": split_with_a_fixed_test,
            "split the people, and let each one's images follow.": split_of_sorted_images,
            "the parts have 7, 1 and 2 of 10 people": split_by_remainder,
            "only a few different splits come out": split_by_rolling,
            "somebody is never in the validation set": split_that_draws_the_test_alone,
            "a mask with one True or False a row.": split_into_sets,
            "the test set is empty.": split_with_an_empty_list,
            "the same seed gave two different splits": split_by_luck,
            "the largest part comes first": split_the_other_way_round,
            "a fifth of the people is for validation": split_in_thirds,
            "1 of 200 images are in none of the parts.": split_that_loses_rows,
            "return row numbers, not people.": split_into_people,
            "three parts must come back": split_in_two,
            "the validation set is empty.": split_without_validation,
            "each part is a list of row numbers": split_into_shares,
            "nothing came back": split_that_only_prints,
        },
    ),
    Gallery(
        "train_on_batches",
        p02.train_on_batches_with_a_bug,
        [p02.train_on_batches, training_by_hand, training_cleared_at_the_end],
        {
            "of all earlier batches are still in the sum": training_cleared_once,
            "no weight has changed": training_cleared_too_late,
            "the last one's gradients still add up.": training_cleared_in_one_layer,
            "the first one's gradients still add up.": training_cleared_in_the_last_layer,
            "this is one step, on the first batch": training_that_returns_too_early,
            "in each step: clear the gradients": training_at_smaller_and_smaller_rates,
            "the loss of each step must come back": training_without_losses,
            "not the losses before each step.": training_with_losses_after_the_step,
            "a function is wanted, without calling it, not [0.3].": [0.3],
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_a_right_but_wasteful_layer_is_told_so():
    assert "table of slopes for every image" in p02.check_layer(layer_by_outer_products)
    assert "two matrix products" in p02.check_layer(layer_in_loops)


def test_a_clipped_logarithm_is_not_stable():
    try:
        p02.check_entropy(entropy_of_a_clipped_p)
    except p02.Wrong as wrong:
        assert "so small that it is rounded to 0" in str(wrong)
    else:
        raise AssertionError("it was accepted")
