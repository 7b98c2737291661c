"""Exercises of notebook 07: weights and windows, pooling, normalising, a protocol, a bug."""

import torch
from torch.nn.functional import avg_pool2d, max_pool2d

from course.classroom.answers import function, number
from course.classroom.comparison import compare, refuse
from course.classroom.problems import Exercise, Wrong
from course.learning.nine_layers import neurons
from course.learning.nine_layers.plan import Geometry, Plan, sizes


def weights_of_two_stages(channels=3, pool_stride=2, maps=6):
    """Counted by formula, from the plan: nothing is built."""
    first = Geometry(field=10, stride=2, maps=maps, penalty=0, pool=3, pool_stride=pool_stride)
    second = Geometry(field=5, stride=1, maps=4, penalty=0, pool=1, pool_stride=1)
    return sum(size.weights for size in sizes(Plan(channels, 96, None, (first, second))))


def check_weights(answer):
    count, right = number(answer), weights_of_two_stages()
    if count == right:
        return "nearly all of them in the first stage, which sees the whole picture finely."
    first, second = 6 * 44**2 * 300, 4 * 17**2 * 150
    refuse(
        count,
        (first, "this is the first stage alone: add the second."),
        (second, "this is the second stage alone: add the first."),
        (6 * 300 + 4 * 150, "this is for shared filters; here every window has its own."),
        (first + 4 * 17**2 * 25, "a filter of the second stage sees all 6 maps of the first."),
        (6 * 44**2 * 100 + second, "a filter of the first stage sees three colours."),
        (weights_of_two_stages(pool_stride=1), "the pools are 2 places apart, not 1."),
        (first + 4 * 40**2 * 150, "the second stage sees what the pools answer, 21 x 21."),
        (first + 4 * 18**2 * 150, "(44 - 3) // 2 + 1 pools fit on 44 places: 21, not 22."),
        (6 * 87**2 * 300 + 4 * 39**2 * 150, "the windows of the first stage are 2 pixels apart."),
        (6 * 43**2 * 300 + second, "43 steps of 2 fit, so there are 44 windows."),
        (6 * 43**2 * 300 + 4 * 15**2 * 150, "one more window than steps fits, in each layer."),
        (44**2 * 300 + 17**2 * 150, "every window has a filter for each map."),
        (right + 6 * 44**2 + 4 * 17**2, "these filters have no bias: weights alone."),
        tolerance=1e-9,
    )
    raise Wrong("windows x maps x pixels of a window x channels, for each stage; then add.")


def pixels_of_a_top_neuron(field=18, pool=5, stages=3, more=-1):
    """Along a side of the frame, with strides of 1: each layer adds its window less one."""
    return 1 + stages * (field + more + pool + more)


def check_pixels(answer):
    count, right = number(answer), pixels_of_a_top_neuron()
    if count == right:
        return "a top neuron of that network sees less than a third of the width of its frames."
    refuse(
        count,
        (right**2, "this is the number of pixels in the square; its side is asked for."),
        (right - 1, "that is what the windows add; the first pixel itself counts, too."),
        (pixels_of_a_top_neuron(more=0), "windows overlap: one of 18 adds 17 pixels, not 18."),
        (right + 2, "windows overlap: one of 18 adds 17 pixels, not 18."),
        (3 * (18 + 5), "windows overlap: one of 18 adds 17 pixels, not 18."),
        (3 * 17 + 1, "the pools have windows, too: each adds 4."),
        (3 * 18, "windows overlap, and the pools have windows, too."),
        (22, "this is what a neuron of the first stage sees; there are three stages."),
        (43, "this is after two stages; there are three."),
        (200, "the windows of the last layer do not reach over the whole frame."),
        (18 * 5 * 18, "windows do not multiply: with a stride of 1 each layer adds to the last."),
        tolerance=1e-9,
    )
    raise Wrong("start with 1 pixel; a window of f places with a stride of 1 adds f - 1 to it.")


def energy_pool(answers, field, stride, eps=1e-4):
    """What pools answer: answers [batch, maps, height, width] -> [batch, maps, rows, columns]."""
    windows = answers.unfold(2, field, stride).unfold(3, field, stride)
    return (eps + windows.square().sum(dim=(4, 5))).sqrt()


def over_windows(reduce):
    """A pool that sums `reduce(windows)`, or another slip over windows [..., field, field]."""

    def slip(answers, field, stride, eps=1e-4):
        return reduce(answers.unfold(2, field, stride).unfold(3, field, stride), eps)

    return slip


POOL_SLIPS = (
    (
        over_windows(lambda w, eps: (eps + w.square().mean(dim=(4, 5))).sqrt()),
        "the squares are added, not averaged.",
    ),
    (
        over_windows(lambda w, eps: eps + w.square().sum(dim=(4, 5))),
        "the root is missing: this is the energy itself.",
    ),
    (
        over_windows(lambda w, eps: w.square().sum(dim=(4, 5)).sqrt()),
        "eps is missing: without it the root has an infinite slope where all is 0.",
    ),
    (
        over_windows(lambda w, eps: w.square().sum(dim=(4, 5)).sqrt() + eps),
        "eps belongs under the root.",
    ),
    (
        over_windows(lambda w, eps: (eps + w).square().sum(dim=(4, 5)).sqrt()),
        "eps is added once to the sum, not to every answer.",
    ),
    (
        over_windows(lambda w, eps: (eps + w.square()).sum(dim=(4, 5)).sqrt()),
        "eps is added once to the sum, not to every square.",
    ),
    (
        over_windows(lambda w, eps: w.abs().sum(dim=(4, 5))),
        "sizes are added here; the squares are to be added, and then the root taken.",
    ),
    (
        lambda answers, field, stride, eps=1e-4: max_pool2d(answers, field, stride),
        "this is the largest answer; a pool here feels all of them, whatever their sign.",
    ),
    (
        lambda answers, field, stride, eps=1e-4: avg_pool2d(answers, field, stride),
        "this is the average, in which dark-on-bright and bright-on-dark cancel.",
    ),
)


def check_pool(answer):
    cases = ((2, 3, 7, 8), 3, 2), ((1, 2, 5, 4), 2, 1), ((3, 1, 9, 6), 2, 3), ((1, 2, 3, 3), 1, 1)
    compare(
        answer,
        energy_pool,
        [(drawn(*shape), field, stride, 0.01) for shape, field, stride in cases],
        POOL_SLIPS,
        otherwise="each pool is sqrt(eps + the sum of squares in its own window of one map).",
        shape_is="what the pools answer",
    )
    return "it feels that something is there, whatever its sign."


def normalised_across_maps(answers, c):
    """answers [batch, maps, height, width], evened out at each place."""
    centred = answers - answers.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt()
    return centred / spread.clamp(min=c)


def evened(divide, centre=lambda x: x - x.mean(dim=1, keepdim=True)):
    """As a slip would even out: `divide(centred, answers, c)`."""
    return lambda answers, c: divide(centre(answers), answers, c)


def rms(x, dim=1):
    return x.square().mean(dim=dim, keepdim=True).sqrt()


NORM_SLIPS = (
    (evened(lambda g, x, c: g), "the mean is gone; now divide by the spread."),
    (
        evened(lambda g, x, c: x / rms(x).clamp(min=c)),
        "the mean over the maps is not subtracted.",
    ),
    (
        evened(lambda g, x, c: g / rms(x).clamp(min=c)),
        "divide by the spread of what is left, not of what there was.",
    ),
    (
        evened(lambda g, x, c: x / rms(g).clamp(min=c)),
        "the spread is right, but it must divide what is left, without the mean.",
    ),
    (evened(lambda g, x, c: g / rms(g)), "c is missing: faint noise is blown up."),
    (
        evened(lambda g, x, c: g / (rms(g) + c)),
        "c is not added: it stands in where the spread is smaller.",
    ),
    (
        evened(lambda g, x, c: g / rms(g).clamp(max=c)),
        "this takes the smaller of spread and c; the larger is wanted.",
    ),
    (
        evened(lambda g, x, c: g / g.square().mean(dim=1, keepdim=True).clamp(min=c)),
        "divide by the root of the mean square.",
    ),
    (
        evened(lambda g, x, c: g / g.square().mean(dim=1, keepdim=True).clamp(min=c).sqrt()),
        "c is compared with the spread, and here with its square.",
    ),
    (
        evened(lambda g, x, c: g / g.square().sum(dim=1, keepdim=True).sqrt().clamp(min=c)),
        "the mean of the squares is wanted, not their sum.",
    ),
    (
        evened(lambda g, x, c: g / x.std(dim=1, keepdim=True).clamp(min=c)),
        "std divides by one map less than there are; take the mean square.",
    ),
    (
        evened(
            lambda g, x, c: g / rms(g, (1, 2, 3)).clamp(min=c),
            lambda x: x - x.mean(dim=(1, 2, 3), keepdim=True),
        ),
        "every place by itself: average over the maps, not over the places.",
    ),
    (
        evened(
            lambda g, x, c: g / rms(g, (2, 3)).clamp(min=c),
            lambda x: x - x.mean(dim=(2, 3), keepdim=True),
        ),
        "this evens out each map over its places; each place over the maps is wanted.",
    ),
)


def check_normalised(answer):
    faint = drawn(2, 4, 3, 5)
    faint[0] *= 0.01  # here c decides
    cases = [(faint, 0.1), (drawn(1, 3, 4, 2), 0.2), (drawn(2, 2, 1, 3) + 5, 0.05)]
    compare(
        answer,
        normalised_across_maps,
        cases,
        NORM_SLIPS,
        otherwise="centred = answers - mean; centred / max(c, root of the mean square of centred).",
        shape_is="what comes out",
    )
    return "it is LocalContrastNorm with a window of one place."


def best_of_20_thresholds(responses, labels):
    """The share right of the best neuron: responses [frames, neurons], labels [frames] of 0, 1."""
    low, high = responses.min(dim=0).values, responses.max(dim=0).values
    best = 0.0
    for step in torch.linspace(0, 1, 20, dtype=responses.dtype):
        says_face = responses > low + step * (high - low)
        right = says_face == (labels == 1)[:, None]
        best = max(best, float(right.double().mean(dim=0).max()))
    return best


def by_rule(says=torch.gt, share=None, ends=None, reduce=None, both=False):
    """As a slip would do it: another comparison, share, range of thresholds or choice."""

    def slip(responses, labels):
        positive = (labels == 1)[:, None].expand_as(responses)
        low, high = (ends or (lambda r: (r.min(dim=0).values, r.max(dim=0).values)))(responses)
        shares = []
        for step in torch.linspace(0, 1, 20, dtype=responses.dtype):
            fires = says(responses, low + step * (high - low))
            right = (share or (lambda f, p: (f == p).double().mean(dim=0)))(fires, positive)
            shares.append(torch.maximum(right, 1 - right) if both else right)
        best = torch.stack(shares).amax(dim=0)
        return float((reduce or torch.amax)(best))

    return slip


def midway(responses, labels):
    low, high = responses.aminmax(dim=0)
    fires = responses > (low + high) / 2
    return float((fires == (labels == 1)[:, None]).double().mean(dim=0).max())


def at_every_response(responses, labels):
    places = [responses > row for row in responses]
    right = [(fires == (labels == 1)[:, None]).double().mean(dim=0).max() for fires in places]
    return float(torch.stack(right).max())


PROTOCOL_SLIPS = (
    (
        by_rule(says=torch.ge),
        "«above» means >: a neuron whose response equals the threshold says no. At the highest "
        "threshold it then says no to every frame.",
    ),
    (by_rule(both=True), "a neuron that falls silent at faces does not tell them: one sign only."),
    (by_rule(says=torch.lt), "this says «face» below the threshold."),
    (
        by_rule(share=lambda f, p: (f & p).double().sum(dim=0) / p.sum(dim=0)),
        "this is the share of faces found; silence at other frames counts as right, too.",
    ),
    (
        by_rule(share=lambda f, p: (f & p).double().mean(dim=0)),
        "only faces are counted; silence at other frames is right, too.",
    ),
    (by_rule(reduce=torch.mean), "this is the average over the neurons; the best is wanted."),
    (by_rule(reduce=lambda best: best[0]), "this is the first neuron; the best is wanted."),
    (
        by_rule(ends=lambda r: (r.min(), r.max())),
        "each neuron has thresholds of its own, between its own lowest and highest response.",
    ),
    (by_rule(ends=lambda r: (0 * r[0], 1 + 0 * r[0])), "responses need not lie between 0 and 1."),
    (midway, "this is one threshold, halfway; try 20."),
    (at_every_response, "a threshold at every response: more than the 20 of the protocol."),
)


def check_protocol(answer):
    golden = torch.tensor([0.9, 0.8, 0.35, 0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    cases = [told_apart(31, 5, 0, last=2.5), told_apart(90, 3, 1), told_apart(44, 2, 2)]
    eighths = torch.tensor([7.0, 6.0, 3.0, 1.0, 2.0, 2.5, 3.5, 4.0], dtype=torch.float64) / 8
    silent = -eighths[:, None], torch.tensor([1, 1, 1, 0, 0, 0, 0, 0])  # best is to say no to all
    compare(
        lambda *case: as_share(function(answer)(*case)),
        best_of_20_thresholds,
        [*cases, (golden[:, None], silent[1]), silent],
        PROTOCOL_SLIPS,
        otherwise="the largest share of frames right, over all neurons and their 20 thresholds.",
    )
    return "0.875 on the eight frames by hand."


def as_share(got):
    """What came back, as a tensor of one number.  Raises Wrong for other things and for counts."""
    if got is None:
        raise Wrong("nothing came back: does the function end in return?")
    if isinstance(got, torch.Tensor) and got.numel() > 1:
        raise Wrong(f"one number is wanted, for the best neuron, not {got.numel()}.")
    value = number(got)
    if not 0 <= value <= 1:
        raise Wrong(f"a share lies between 0 and 1, not at {value:.4g}: how many are right of all?")
    return torch.tensor(value, dtype=torch.float64)


def held_out_share(responses, labels, half):
    """How often the best neuron is right on frames that had no part in its choice."""
    chosen = neurons.selectivity(responses[half], labels[half])
    return neurons.score(chosen, responses[~half], labels[~half])


def held_out_with_a_bug(responses, labels, half):
    """How often the best neuron is right on frames that had no part in its choice."""
    chosen = neurons.selectivity(responses[half], labels[half])
    _, thresholds = neurons.best_thresholds(responses[~half], labels[~half])
    chosen = chosen._replace(threshold=float(thresholds[chosen.neuron]))
    return neurons.score(chosen, responses[~half], labels[~half])


def chosen_on(choose, score):
    """The share right where frames `choose(half)` choose and frames `score(half)` are scored."""

    def slip(responses, labels, half):
        chosen = neurons.selectivity(responses[choose(half)], labels[choose(half)])
        return neurons.score(chosen, responses[score(half)], labels[score(half)])

    return slip


def all_of(half):
    return half | True


def neuron_chosen_on_the_test(responses, labels, half):
    """The neuron is chosen by the frames scored, its threshold by the others."""
    neuron = neurons.selectivity(responses[~half], labels[~half]).neuron
    mine = responses[:, [neuron]]
    return held_out_share(mine, labels, half)


HELD_OUT_SLIPS = (
    (held_out_with_a_bug, "the threshold is still chosen on the frames that are scored."),
    (neuron_chosen_on_the_test, "now the neuron is chosen on the frames that are scored."),
    (chosen_on(torch.logical_not, torch.logical_not), "both are chosen on the frames scored."),
    (chosen_on(all_of, torch.logical_not), "all frames choose, also those that are scored."),
    (chosen_on(all_of, all_of), "all frames choose and are scored: the papers' protocol."),
    (
        chosen_on(torch.clone, torch.clone),
        "scored on the half that chose; score the other half.",
    ),
    (chosen_on(torch.logical_not, torch.clone), "the halves are swapped: `half` may choose."),
    (chosen_on(torch.clone, all_of), "scored on all frames, also on those that chose."),
)


def check_held_out(answer):
    cases = []
    for seed, (frames, count) in enumerate(((61, 40), (40, 25), (83, 60))):
        responses, labels = told_apart(frames, count, seed + 1000, last=1.2)
        half = torch.rand(frames, generator=torch.Generator().manual_seed(seed)) < 0.5
        cases.append((responses, labels, half))
    compare(
        lambda *case: as_share(function(answer)(*case)),
        held_out_share,
        cases,
        HELD_OUT_SLIPS,
        otherwise="`half` chooses neuron and threshold; the others are scored with both.",
    )
    return "neuron and threshold both come from frames that are not scored."


def told_apart(frames, count, seed, last=-3.0):
    """Responses [frames, count] of neurons, labels [frames]: the first neuron tells them a little,
    the last one `last` times their spread: below 0 it is a neuron that falls silent."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(frames, generator=generator) < 0.4).long()
    noise = torch.randn(frames, count, generator=generator, dtype=torch.float64)
    slope, scale, offset = (
        torch.linspace(*ends, count, dtype=torch.float64) for ends in ((0.9, last), (1, 5), (-3, 9))
    )
    return (noise + labels[:, None] * slope) * scale + offset, labels


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


EXERCISES = [
    Exercise(
        "weights_of_two_stages",
        "put the number of weights of both stages in place of the dots.",
        check_weights,
        (
            "on 96 pixels there are (96 - 10) // 2 + 1 windows of 10 every 2; pools likewise.",
            "each window has a filter for every map, and a filter sees all channels (or maps).",
            "6 * 44**2 * (10 * 10 * 3) for the first; what is left of 44 after pooling?",
        ),
        weights_of_two_stages,
    ),
    Exercise(
        "pixels_of_a_top_neuron",
        "put the side of the square that a top neuron sees, in pixels, in place of the dots.",
        check_pixels,
        (
            "a filter of the first stage sees 18 pixels; its four neighbours in a row see 4 more.",
            "with strides of 1 a window of f places adds f - 1 pixels.",
            "1 + 17 + 4 for the first stage, and the same is added by each of the others.",
        ),
        pixels_of_a_top_neuron,
    ),
    Exercise(
        "energy_pool",
        "write energy_pool(answers, field, stride, eps): the root of eps plus the sum of squares "
        "in each window of each map.",
        check_pool,
        (
            "answers.unfold(2, field, stride) cuts windows along the height, in a last axis.",
            "after two unfolds the windows are [batch, maps, rows, columns, field, field].",
            "square, sum over the last two axes, add eps, take the root.",
        ),
        energy_pool,
    ),
    Exercise(
        "normalised_across_maps",
        "write normalised_across_maps(answers, c): mean over the maps 0, spread 1, at each place.",
        check_normalised,
        (
            "the maps are axis 1; keepdim=True keeps a mean in a shape that can be subtracted.",
            "the spread is the root of the mean square of what is left.",
            ".clamp(min=c) takes the larger of the spread and c.",
        ),
        normalised_across_maps,
    ),
    Exercise(
        "best_of_20_thresholds",
        "write best_of_20_thresholds(responses, labels): the best share right of the best neuron.",
        check_protocol,
        (
            "one neuron first: 20 thresholds by torch.linspace(low, high, 20).",
            "(response > threshold) == (labels == 1) is true where the neuron is right.",
            "all neurons at once: low and high are [neurons], labels become a column [:, None].",
        ),
        best_of_20_thresholds,
    ),
    Exercise(
        "held_out_share",
        "find the bug in held_out_share and repair it, so that nothing is chosen on the frames "
        "that are scored.",
        check_held_out,
        (
            "two things are chosen: a neuron and a threshold.",
            "which frames does each of the four lines look at?",
        ),
        held_out_share,
        given=held_out_with_a_bug,
    ),
]
