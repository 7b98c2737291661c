"""Numbers to learn, a slope, a step back, a length and a repaired price: really likely answers."""

import torch

from course.classroom.problems import p05_autoencoders as p05
from course.learning.sparse.autoencoder import AutoEncoder, Rica, divergence
from tests.classroom.gallery import Gallery, gallery_tests

# The slope of the price


def slope_stub(target, activity):
    """How fast KL(target || activity) grows with the activity: activity [units]."""
    ...


def slope_by_autograd(target, activity):
    activity = activity.clone().requires_grad_()
    return torch.autograd.grad(divergence(target, activity).sum(), activity)[0]


def slope_as_one_fraction(target, activity):
    return (activity - target) / (activity * (1 - activity))


def slope_upside_down(target, activity):
    return target / activity - (1 - target) / (1 - activity)


def slope_of_the_first_logarithm(target, activity):
    return -target / activity


def slope_of_the_second_logarithm(target, activity):
    return (1 - target) / (1 - activity)


def slope_without_the_inner_derivative(target, activity):
    return -target / activity - (1 - target) / (1 - activity)


def slope_with_a_sign_too_few(target, activity):
    return target / activity + (1 - target) / (1 - activity)


def slope_that_is_the_price(target, activity):
    return target * torch.log(target / activity) + (1 - target) * torch.log(
        (1 - target) / (1 - activity)
    )


def slope_in_the_target(target, activity):
    return torch.log(target / activity) - torch.log((1 - target) / (1 - activity))


def slope_of_the_other_divergence(target, activity):
    return torch.log(activity / target) - torch.log((1 - activity) / (1 - target))


def slope_of_the_slope(target, activity):
    return target / activity**2 + (1 - target) / (1 - activity) ** 2


def slope_without_its_factors(target, activity):
    return 1 / (1 - activity) - 1 / activity


def slope_summed(target, activity):
    return p05.activity_slope(target, activity).sum()


def slope_that_only_prints(target, activity):
    p05.activity_slope(target, activity).tolist()


def slope_with_a_clamp(target, activity):
    return p05.activity_slope(target, activity.clamp(min=0.07))


# The step back


def delta_stub(delta3, decoder, codes, target, sparsity):
    """delta2 [count, hidden] from delta3 [count, pixels] and codes [count, hidden]."""
    ...


def delta_by_autograd(delta3, decoder, codes, target, sparsity):
    sums = torch.logit(codes).requires_grad_()
    codes = torch.sigmoid(sums)
    # The mean over patches is taken later, so the price is counted once for each patch.
    price = len(codes) * sparsity * divergence(target, codes.mean(dim=0)).sum()
    return torch.autograd.grad((codes @ decoder.T * delta3).sum() + price, sums)[0]


def delta_in_loops(delta3, decoder, codes, target, sparsity):
    delta2 = torch.zeros_like(codes)
    for i in range(codes.shape[0]):
        for j in range(codes.shape[1]):
            q = codes[:, j].mean()
            blame = (delta3[i] * decoder[:, j]).sum()
            blame = blame + sparsity * (-target / q + (1 - target) / (1 - q))
            delta2[i, j] = blame * codes[i, j] * (1 - codes[i, j])
    return delta2


def delta_without_the_price(delta3, decoder, codes, target, sparsity):
    return delta3 @ decoder * codes * (1 - codes)


def delta_without_the_sigmoid(delta3, decoder, codes, target, sparsity):
    return delta3 @ decoder + sparsity * p05.activity_slope(target, codes.mean(dim=0))


def delta_of_half_a_slope(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=0))
    return (delta3 @ decoder + push) * codes


def delta_through_two_sigmoids(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=0))
    s = torch.sigmoid(codes)
    return (delta3 @ decoder + push) * s * (1 - s)


def delta_with_a_missing_bracket(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=0))
    return delta3 @ decoder * codes * (1 - codes) + push


def delta_of_a_mean_over_units(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=1, keepdim=True))
    return (delta3 @ decoder + push) * codes * (1 - codes)


def delta_of_one_mean(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean())
    return (delta3 @ decoder + push) * codes * (1 - codes)


def delta_pushed_the_wrong_way(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=0))
    return (delta3 @ decoder - push) * codes * (1 - codes)


def delta_divided_by_the_patches(delta3, decoder, codes, target, sparsity):
    push = sparsity / len(codes) * p05.activity_slope(target, codes.mean(dim=0))
    return (delta3 @ decoder + push) * codes * (1 - codes)


def delta_without_the_factor(delta3, decoder, codes, target, sparsity):
    push = p05.activity_slope(target, codes.mean(dim=0))
    return (delta3 @ decoder + push) * codes * (1 - codes)


def delta_pushed_by_the_price(delta3, decoder, codes, target, sparsity):
    push = sparsity * divergence(target, codes.mean(dim=0))
    return (delta3 @ decoder + push) * codes * (1 - codes)


def delta_of_every_code(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes)
    return (delta3 @ decoder + push) * codes * (1 - codes)


def delta_through_the_transposed(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=0))
    return (delta3 @ decoder.T + push) * codes * (1 - codes)


def delta_summed(delta3, decoder, codes, target, sparsity):
    return p05.hidden_delta(delta3, decoder, codes, target, sparsity).mean(dim=0)


def delta_averaged(delta3, decoder, codes, target, sparsity):
    return p05.hidden_delta(delta3, decoder, codes, target, sparsity) / codes.shape[0]


def delta_with_the_bracket_too_late(delta3, decoder, codes, target, sparsity):
    push = sparsity * p05.activity_slope(target, codes.mean(dim=0))
    return delta3 @ decoder + push * (codes - codes**2)


def delta_all_times_sparsity(delta3, decoder, codes, target, sparsity):
    blame = delta3 @ decoder + p05.activity_slope(target, codes.mean(dim=0))
    return sparsity * blame * (codes - codes**2)


def delta_in_place(delta3, decoder, codes, target, sparsity):
    delta2 = p05.hidden_delta(delta3, decoder, codes, target, sparsity)
    codes *= 1 - codes
    return delta2


def delta_doubled(delta3, decoder, codes, target, sparsity):
    return 2 * p05.hidden_delta(delta3, decoder, codes, target, sparsity)


# Through the length


def length_stub(filters, slopes):
    """Slopes in the filters v [features, pixels], from the slopes in v / |v|, same shape."""
    ...


def length_by_autograd(filters, slopes):
    v = filters.clone().requires_grad_()
    return torch.autograd.grad((Rica(v).unit().filters * slopes).sum(), v)[0]


def length_row_by_row(filters, slopes):
    rows = []
    for v, g in zip(filters, slopes, strict=True):
        rows.append((g - (g @ v) / (v @ v) * v) / (v @ v).sqrt())
    return torch.stack(rows)


def length_ignored(filters, slopes):
    return slopes


def length_divided_only(filters, slopes):
    return slopes / filters.norm(dim=1, keepdim=True)


def length_projected_only(filters, slopes):
    u = filters / filters.norm(dim=1, keepdim=True)
    return slopes - (slopes * u).sum(dim=1, keepdim=True) * u


def length_of_columns(filters, slopes):
    lengths = filters.norm(dim=0, keepdim=True)
    u = filters / lengths
    return (slopes - (slopes * u).sum(dim=0, keepdim=True) * u) / lengths


def length_multiplied(filters, slopes):
    return length_projected_only(filters, slopes) * filters.norm(dim=1, keepdim=True)


def length_divided_twice(filters, slopes):
    return length_projected_only(filters, slopes) / filters.square().sum(dim=1, keepdim=True)


def length_with_a_plus(filters, slopes):
    lengths = filters.norm(dim=1, keepdim=True)
    u = filters / lengths
    return (slopes + (slopes * u).sum(dim=1, keepdim=True) * u) / lengths


def length_along_v_itself(filters, slopes):
    along = (slopes * filters).sum(dim=1, keepdim=True)
    return (slopes - along * filters) / filters.norm(dim=1, keepdim=True)


def length_forward(filters, slopes):
    return filters / filters.norm(dim=1, keepdim=True)


def length_of_the_slopes(filters, slopes):
    return slopes / slopes.norm(dim=1, keepdim=True)


def length_of_all_together(filters, slopes):
    u = filters / filters.norm()
    return (slopes - (slopes * u).sum() * u) / filters.norm()


def length_keeping_the_wrong_part(filters, slopes):
    lengths = filters.norm(dim=1, keepdim=True)
    u = filters / lengths
    return (slopes * u).sum(dim=1, keepdim=True) * u / lengths


def length_without_keepdim(filters, slopes):
    return slopes / filters.norm(dim=1)


def length_with_one_length_too_few(filters, slopes):
    lengths = filters.norm(dim=1, keepdim=True)
    along = (slopes * filters).sum(dim=1, keepdim=True)
    return (slopes - along * filters / lengths) / lengths


def length_without_brackets(filters, slopes):
    lengths = filters.norm(dim=1, keepdim=True)
    u = filters / lengths
    return slopes - (slopes * u).sum(dim=1, keepdim=True) * u / lengths


def length_in_place(filters, slopes):
    lengths = filters.norm(dim=1, keepdim=True)
    filters /= lengths
    return (slopes - (slopes * filters).sum(dim=1, keepdim=True) * filters) / lengths


def length_of_the_biggest(filters, slopes):
    return length_projected_only(filters, slopes) / filters.abs().amax(dim=1, keepdim=True)


# The price


def price_of_the_package(codes, target):
    return divergence(target, codes.mean(dim=0)).sum()


def price_by_hand(codes, target):
    count, hidden = codes.shape
    total = 0.0
    for j in range(hidden):
        q = sum(codes[i, j] for i in range(count)) / count
        total += target * torch.log(target / q)
        total += (1 - target) * torch.log((1 - target) / (1 - q))
    return total


def price_of_the_last_axis(codes, target):
    activity = codes.mean(dim=-1)
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return (target * torch.log(target / activity) + off).sum()


def price_of_one_mean(codes, target):
    activity = codes.mean()
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return (target * torch.log(target / activity) + off).sum()


def price_of_every_code(codes, target):
    off = (1 - target) * torch.log((1 - target) / (1 - codes))
    return (target * torch.log(target / codes) + off).mean(dim=0).sum()


def price_summed_over_everything(codes, target):
    return divergence(target, codes).sum()


def price_averaged(codes, target):
    activity = codes.mean(dim=0)
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return (target * torch.log(target / activity) + off).mean()


def price_the_other_way_round(codes, target):
    activity = codes.mean(dim=0)
    off = (1 - activity) * torch.log((1 - activity) / (1 - target))
    return (activity * torch.log(activity / target) + off).sum()


def price_of_the_median(codes, target):
    return divergence(target, codes.median(dim=0).values).sum()


def price_divided_by_the_units(codes, target):
    return divergence(target, codes.sum(dim=0) / codes.shape[1]).sum()


def price_of_each_unit(codes, target):
    activity = codes.mean(dim=0)
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return target * torch.log(target / activity) + off


def price_of_one_half(codes, target):
    activity = codes.mean(dim=0)
    return (target * torch.log(target / activity)).sum()


WEIGHTS = 144 * 400

GALLERIES = [
    Gallery(
        "numbers_to_learn",
        ...,
        [
            2 * WEIGHTS + 400 + 144,
            sum(
                each.numel()
                for each in AutoEncoder(*map(torch.empty, (WEIGHTS, 400, WEIGHTS, 144)))
            ),
        ],
        {
            "these are the weights": 2 * WEIGHTS,
            "this is the encoder; the decoder leads back": WEIGHTS + 400,
            "this is the decoder": WEIGHTS + 144,
            "this is one table of weights": WEIGHTS,
            "they are not shared": WEIGHTS + 400 + 144,
            "the rebuilt pixels have a bias each, too.": 2 * WEIGHTS + 400,
            "the hidden units have a bias each, too.": 2 * WEIGHTS + 144,
            "the decoder has a bias for each pixel": 2 * (WEIGHTS + 400),
            "a patch of 12 x 12 has 144 pixels.": 2 * 12 * 400 + 400 + 12,
            "3,289 are too few": 3289,
            "231,488 are too many": 231_488,
            "a number is wanted, not '154 thousand'.": "154 thousand",
        },
    ),
    Gallery(
        "activity_slope",
        slope_stub,
        [p05.activity_slope, slope_by_autograd, slope_as_one_fraction],
        {
            "the sign is wrong": slope_upside_down,
            "this is the slope of the first logarithm": slope_of_the_first_logarithm,
            "this is the slope of the second logarithm alone.": slope_of_the_second_logarithm,
            "1 - activity falls when the activity grows": slope_without_the_inner_derivative,
            "log(target / activity) falls with the activity.": slope_with_a_sign_too_few,
            "this is the price itself": slope_that_is_the_price,
            "this is the slope in the target": slope_in_the_target,
            "the two have changed places": slope_of_the_other_divergence,
            "this is the curvature": slope_of_the_slope,
            "the logarithms count target and 1 - target times.": slope_without_its_factors,
            "one slope per unit has shape [3], not []": slope_summed,
            "nothing came back": slope_that_only_prints,
            "take the two logarithms one by one": slope_with_a_clamp,
        },
    ),
    Gallery(
        "hidden_delta",
        delta_stub,
        [p05.hidden_delta, delta_by_autograd, delta_in_loops],
        {
            "the push of the price is missing.": delta_without_the_price,
            "codes * (1 - codes), is missing.": delta_without_the_sigmoid,
            "the slope of the sigmoid is codes * (1 - codes).": delta_of_half_a_slope,
            "do not send them through it again": delta_through_two_sigmoids,
            "add it before you take the slope": delta_with_a_missing_bracket,
            "over the patches, not over the units": delta_of_a_mean_over_units,
            "each unit has a mean code of its own.": delta_of_one_mean,
            "the push has the wrong sign.": delta_pushed_the_wrong_way,
            "the mean over the patches is taken later": delta_divided_by_the_patches,
            "delta2 is that of each patch": delta_averaged,
            "brackets around blame + push": delta_with_the_bracket_too_late,
            "only the push is multiplied by sparsity": delta_all_times_sparsity,
            "sparsity times the push": delta_without_the_factor,
            "the push is the slope of KL, not KL itself.": delta_pushed_by_the_price,
            "KL is taken of a unit's mean code": delta_of_every_code,
            "mat1 and mat2 shapes cannot be multiplied": delta_through_the_transposed,
            "one delta per patch and unit has shape [7, 3], not [3].": delta_summed,
            "what the function was given has changed": delta_in_place,
            "blame through the decoder, plus the push": delta_doubled,
        },
    ),
    Gallery(
        "through_the_length",
        length_stub,
        [p05.through_the_length, length_by_autograd, length_row_by_row],
        {
            "these are the slopes in u": length_ignored,
            "take away the part along each filter": length_divided_only,
            "a long v turns less: divide by its length": length_projected_only,
            "these are columns": length_of_columns,
            "divide, not multiply": length_multiplied,
            "divided by the length twice": length_divided_twice,
            "the part along v has been added": length_with_a_plus,
            "take the part along v / |v|": length_along_v_itself,
            "|v| stands below twice": length_with_one_length_too_few,
            "brackets around the difference": length_without_brackets,
            "these are the filters u": length_forward,
            "not the slopes are made 1 long": length_of_the_slopes,
            "this is the length of all together": length_of_all_together,
            "this is the part along v, which has to go": length_keeping_the_wrong_part,
            "The size of tensor a (5) must match": length_without_keepdim,
            "what the function was given has changed": length_in_place,
            "for each row: the slopes without": length_of_the_biggest,
        },
    ),
    Gallery(
        "price_of_activity",
        p05.price_of_activity_with_a_bug,
        [p05.price_of_activity, price_of_the_package, price_by_hand],
        {
            "still a mean over the units of a patch": price_of_the_last_axis,
            "one mean for all units": price_of_one_mean,
            "this asks every single code to be near the target": price_of_every_code,
            "take the mean of a unit first": price_summed_over_everything,
            "a sum over the units, not their mean.": price_averaged,
            "the two have changed places": price_the_other_way_round,
            "not the median": price_of_the_median,
            "not by the number of units": price_divided_by_the_units,
            "the price, one number, has shape [], not [3].": price_of_each_unit,
            "the mean over the patches for each unit, KL of each": price_of_one_half,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
