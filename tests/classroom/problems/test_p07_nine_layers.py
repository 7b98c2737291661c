"""Counted weights, pools, norms, a protocol and a fair score: answers that were really likely."""

import numpy
import torch
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d, pad

from course.classroom.problems import p07_nine_layers as p07
from course.learning.nine_layers import layers, neurons
from tests.classroom.gallery import Gallery, gallery_tests

# Pools


def pool_stub(answers, field, stride, eps=1e-4):
    """What pools answer: answers [batch, maps, height, width] -> [batch, maps, rows, columns]."""
    ...


def pool_of_the_package(answers, field, stride, eps=1e-4):
    return layers.L2Pool(field, stride, eps)(answers)


def pool_by_averages(answers, field, stride, eps=1e-4):
    return (eps + field**2 * avg_pool2d(answers**2, field, stride)).sqrt()


def pool_in_loops(answers, field, stride, eps=1e-4):
    batch, maps, height, width = answers.shape
    rows, columns = (height - field) // stride + 1, (width - field) // stride + 1
    pooled = torch.empty(batch, maps, rows, columns, dtype=answers.dtype)
    for i in range(rows):
        for j in range(columns):
            top, left = i * stride, j * stride
            seen = answers[:, :, top : top + field, left : left + field]
            pooled[:, :, i, j] = torch.sqrt(eps + (seen**2).sum((2, 3)))
    return pooled


def pool_of_means(answers, field, stride, eps=1e-4):
    return (eps + avg_pool2d(answers**2, field, stride)).sqrt()


def pool_without_root(answers, field, stride, eps=1e-4):
    return eps + field**2 * avg_pool2d(answers**2, field, stride)


def pool_without_eps(answers, field, stride, eps=1e-4):
    return (field**2 * avg_pool2d(answers**2, field, stride)).sqrt()


def pool_with_eps_outside(answers, field, stride, eps=1e-4):
    return (field**2 * avg_pool2d(answers**2, field, stride)).sqrt() + eps


def pool_with_eps_everywhere(answers, field, stride, eps=1e-4):
    return (field**2 * avg_pool2d(answers**2 + eps, field, stride)).sqrt()


def pool_with_eps_in_the_square(answers, field, stride, eps=1e-4):
    return (field**2 * avg_pool2d((answers + eps) ** 2, field, stride)).sqrt()


def pool_of_sizes(answers, field, stride, eps=1e-4):
    return field**2 * avg_pool2d(answers.abs(), field, stride)


def pool_of_the_largest(answers, field, stride, eps=1e-4):
    return max_pool2d(answers, field, stride)


def pool_of_the_average(answers, field, stride, eps=1e-4):
    return avg_pool2d(answers, field, stride)


def pool_without_stride(answers, field, stride, eps=1e-4):
    return pool_by_averages(answers, field, 1, eps)


def pool_padded(answers, field, stride, eps=1e-4):
    return pool_by_averages(pad(answers, (1, 1, 1, 1)), field, stride, eps)


def pool_over_maps_too(answers, field, stride, eps=1e-4):
    ones = torch.ones(1, answers.shape[1], field, field, dtype=answers.dtype)
    return (
        (eps + conv2d(answers**2, ones, stride=stride)).sqrt().expand(-1, answers.shape[1], -1, -1)
    )


def pool_in_place(answers, field, stride, eps=1e-4):
    answers.square_()
    return (eps + field**2 * avg_pool2d(answers, field, stride)).sqrt()


# Norms


def norm_stub(answers, c):
    """answers [batch, maps, height, width], evened out at each place."""
    ...


def norm_of_the_package(answers, c):
    return layers.LocalContrastNorm(1, c=c)(answers)


def norm_by_std(answers, c):
    spread = answers.std(dim=1, keepdim=True, correction=0)
    return (answers - answers.mean(1, keepdim=True)) / torch.maximum(spread, torch.tensor(c))


def norm_in_numpy(answers, c):
    x = answers.numpy()
    left = x - x.mean(axis=1, keepdims=True)
    return left / numpy.maximum(numpy.sqrt((left**2).mean(axis=1, keepdims=True)), c)


def norm_that_only_subtracts(answers, c):
    return answers - answers.mean(1, keepdim=True)


def norm_that_only_divides(answers, c):
    return answers / (answers**2).mean(1, keepdim=True).sqrt().clamp(min=c)


def norm_by_the_spread_before(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / (answers**2).mean(1, keepdim=True).sqrt().clamp(min=c)


def norm_of_what_there_was(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return answers / (left**2).mean(1, keepdim=True).sqrt().clamp(min=c)


def norm_without_c(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / (left**2).mean(1, keepdim=True).sqrt()


def norm_with_c_added(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / ((left**2).mean(1, keepdim=True).sqrt() + c)


def norm_with_the_smaller(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / torch.minimum((left**2).mean(1, keepdim=True).sqrt(), torch.tensor(c))


def norm_without_root(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / (left**2).mean(1, keepdim=True).clamp(min=c)


def norm_with_c_under_the_root(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / (left**2).mean(1, keepdim=True).clamp(min=c).sqrt()


def norm_by_lengths(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / left.norm(dim=1, keepdim=True).clamp(min=c)


def norm_by_default_std(answers, c):
    left = answers - answers.mean(1, keepdim=True)
    return left / answers.std(dim=1, keepdim=True).clamp(min=c)


def norm_over_everything(answers, c):
    left = answers - answers.mean((1, 2, 3), keepdim=True)
    return left / (left**2).mean((1, 2, 3), keepdim=True).sqrt().clamp(min=c)


def norm_over_places(answers, c):
    left = answers - answers.mean((2, 3), keepdim=True)
    return left / (left**2).mean((2, 3), keepdim=True).sqrt().clamp(min=c)


def norm_that_drops_the_maps(answers, c):
    return answers.mean(1)


# The protocol


def protocol_stub(responses, labels):
    """The share right of the best neuron: responses [frames, neurons], labels [frames] of 0, 1."""
    ...


def protocol_of_the_package(responses, labels):
    return neurons.selectivity(responses, labels).accuracy


def protocol_in_loops(responses, labels):
    best = 0
    for response in responses.T:
        for threshold in torch.linspace(float(response.min()), float(response.max()), 20):
            best = max(best, ((response > threshold) == labels.bool()).double().mean().item())
    return best


def protocol_of_both_signs(responses, labels):
    best = 0
    for response in responses.T:
        for threshold in torch.linspace(float(response.min()), float(response.max()), 20):
            right = ((response > threshold) == labels.bool()).double().mean().item()
            best = max(best, right, 1 - right)
    return best


def protocol_below(responses, labels):
    return protocol_in_loops(-responses, labels)


def protocol_of_faces_found(responses, labels):
    low, high = responses[labels == 1].aminmax(dim=0)
    return (responses[labels == 1] >= low).double().mean(0).max()


def protocol_of_hits(responses, labels):
    return ((responses > responses.amin(0)) & labels.bool()[:, None]).double().mean(0).max()


def protocol_of_the_mean_neuron(responses, labels):
    return neurons.best_thresholds(responses, labels)[0].mean()


def protocol_of_the_first_neuron(responses, labels):
    return protocol_in_loops(responses[:, :1], labels)


def protocol_with_one_range(responses, labels):
    best = 0
    for threshold in torch.linspace(float(responses.min()), float(responses.max()), 20):
        right = (responses > threshold) == labels.bool()[:, None]
        best = max(best, right.double().mean(0).max().item())
    return best


def protocol_from_0_to_1(responses, labels):
    best = 0
    for threshold in torch.linspace(0, 1, 20):
        right = (responses > threshold) == labels.bool()[:, None]
        best = max(best, right.double().mean(0).max().item())
    return best


def protocol_halfway(responses, labels):
    low, high = responses.aminmax(dim=0)
    return ((responses > (low + high) / 2) == labels.bool()[:, None]).double().mean(0).max()


def protocol_at_every_response(responses, labels):
    fires = responses[:, None] > responses[None]
    return (fires == labels.bool()[:, None, None]).double().mean(0).max()


def protocol_not_strictly_above(responses, labels):
    low, high = responses.min(0).values, responses.max(0).values
    thresholds = torch.stack([low + k / 19 * (high - low) for k in range(20)])
    says_face = responses[None] >= thresholds[:, None]
    return (says_face == labels.bool()[None, :, None]).double().mean(1).max()


def protocol_that_counts(responses, labels):
    return neurons.selectivity(responses, labels).accuracy * len(labels)


def protocol_for_each(responses, labels):
    return neurons.best_thresholds(responses, labels)[0]


def protocol_that_prints(responses, labels):
    str(protocol_in_loops(responses, labels))


# The bug


def held_out_in_one_go(responses, labels, half):
    test = ~half
    best, neuron, threshold = neurons.selectivity(responses[half], labels[half])
    return ((responses[test, neuron] > threshold) == (labels[test] == 1)).double().mean()


def held_out_with_another_neuron(responses, labels, half):
    neuron = neurons.selectivity(responses[~half], labels[~half]).neuron
    _, thresholds = neurons.best_thresholds(responses[half], labels[half])
    chosen = neurons.Selectivity(0.0, neuron, float(thresholds[neuron]))
    return neurons.score(chosen, responses[~half], labels[~half])


def held_out_on_the_test_alone(responses, labels, half):
    return neurons.selectivity(responses[~half], labels[~half]).accuracy


def held_out_by_all(responses, labels, half):
    chosen = neurons.selectivity(responses, labels)
    return neurons.score(chosen, responses[~half], labels[~half])


def held_out_of_nothing(responses, labels, half):
    return neurons.selectivity(responses, labels).accuracy


def held_out_scored_where_chosen(responses, labels, half):
    return neurons.selectivity(responses[half], labels[half]).accuracy


def held_out_swapped(responses, labels, half):
    return p07.held_out_share(responses, labels, ~half)


def held_out_scored_on_all(responses, labels, half):
    return neurons.score(neurons.selectivity(responses[half], labels[half]), responses, labels)


def held_out_both_ways(responses, labels, half):
    ways = [p07.held_out_share(responses, labels, each) for each in (half, ~half)]
    return sum(ways) / 2


GALLERIES = [
    Gallery(
        "weights_of_two_stages",
        ...,
        [3_658_200, 3_658_200.0, torch.tensor(3_658_200)],
        {
            "the first stage alone": 3_484_800,
            "the second stage alone": 173_400,
            "shared filters": 2_400,
            "sees all 6 maps": 3_513_700,
            "sees three colours": 1_335_000,
            "2 places apart, not 1": 6 * 44**2 * 300 + 4 * 38**2 * 150,
            "what the pools answer, 21 x 21": 6 * 44**2 * 300 + 4 * 40**2 * 150,
            "21, not 22": 6 * 44**2 * 300 + 4 * 18**2 * 150,
            "the first stage are 2 pixels apart": 6 * 87**2 * 300 + 4 * 39**2 * 150,
            "so there are 44 windows": 6 * 43**2 * 300 + 4 * 17**2 * 150,
            "one more window than steps": 6 * 43**2 * 300 + 4 * 15**2 * 150,
            "a filter for each map": 44**2 * 300 + 17**2 * 150,
            "these filters have no bias": 3_658_200 + 6 * 44**2 + 4 * 17**2,
            "windows x maps x pixels": 4_000_000,
            "a number is wanted": "many",
        },
    ),
    Gallery(
        "pixels_of_a_top_neuron",
        ...,
        [64, 64.0, torch.tensor(64)],
        {
            "its side is asked for": 4096,
            "the first pixel itself": 63,
            "windows overlap: one of 18": 70,
            "one of 18 adds 17 pixels": 66,
            "adds 17 pixels, not 18": 69,
            "the pools have windows, too: each": 52,
            "windows overlap, and the pools": 54,
            "of the first stage sees": 22,
            "this is after two stages": 43,
            "over the whole frame": 200,
            "windows do not multiply": 1620,
            "adds f - 1 to it": 100,
            "a number is wanted": "many",
        },
    ),
    Gallery(
        "energy_pool",
        pool_stub,
        [p07.energy_pool, pool_of_the_package, pool_by_averages, pool_in_loops],
        {
            "added, not averaged": pool_of_means,
            "the root is missing": pool_without_root,
            "eps is missing": pool_without_eps,
            "eps belongs under the root": pool_with_eps_outside,
            "not to every square": pool_with_eps_everywhere,
            "not to every answer": pool_with_eps_in_the_square,
            "sizes are added here": pool_of_sizes,
            "this is the largest answer": pool_of_the_largest,
            "this is the average": pool_of_the_average,
            "has shape [2, 3, 3, 3], not [2, 3, 5, 6]": pool_without_stride,
            "has shape [2, 3, 3, 3], not [2, 3, 4, 4]": pool_padded,
            "in its own window of one map": pool_over_maps_too,
            "what the function was given has changed": pool_in_place,
        },
    ),
    Gallery(
        "normalised_across_maps",
        norm_stub,
        [p07.normalised_across_maps, norm_of_the_package, norm_by_std, norm_in_numpy],
        {
            "now divide by the spread": norm_that_only_subtracts,
            "over the maps is not subtracted": norm_that_only_divides,
            "not of what there was": norm_by_the_spread_before,
            "it must divide what is left": norm_of_what_there_was,
            "faint noise is blown up": norm_without_c,
            "c is not added": norm_with_c_added,
            "the larger is wanted": norm_with_the_smaller,
            "divide by the root": norm_without_root,
            "here with its square": norm_with_c_under_the_root,
            "not their sum": norm_by_lengths,
            "one map less": norm_by_default_std,
            "not over the places": norm_over_everything,
            "each map over its places": norm_over_places,
            "has shape [2, 4, 3, 5], not [2, 3, 5]": norm_that_drops_the_maps,
        },
    ),
    Gallery(
        "best_of_20_thresholds",
        protocol_stub,
        [p07.best_of_20_thresholds, protocol_of_the_package, protocol_in_loops],
        {
            "«above» means >": protocol_not_strictly_above,
            "one sign only": protocol_of_both_signs,
            "below the threshold": protocol_below,
            "the share of faces found": protocol_of_faces_found,
            "only faces are counted": protocol_of_hits,
            "the average over the neurons": protocol_of_the_mean_neuron,
            "this is the first neuron": protocol_of_the_first_neuron,
            "thresholds of its own": protocol_with_one_range,
            "between 0 and 1.": protocol_from_0_to_1,
            "halfway; try 20": protocol_halfway,
            "a threshold at every response": protocol_at_every_response,
            "how many are right of all": protocol_that_counts,
            "one number is wanted": protocol_for_each,
            "end in return": protocol_that_prints,
        },
    ),
    Gallery(
        "held_out_share",
        p07.held_out_with_a_bug,
        [p07.held_out_share, held_out_in_one_go],
        {
            "now the neuron is chosen": held_out_with_another_neuron,
            "both are chosen on the frames scored": held_out_on_the_test_alone,
            "all frames choose, also those": held_out_by_all,
            "the papers' protocol": held_out_of_nothing,
            "scored on the half that chose": held_out_scored_where_chosen,
            "the halves are swapped": held_out_swapped,
            "scored on all frames": held_out_scored_on_all,
            "the others are scored with both": held_out_both_ways,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
