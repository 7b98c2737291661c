"""Exercises of notebook 02 networks: a layer backward, a stable loss, a fair split, a bug."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from course.classroom.answers import function
from course.classroom.comparison import close, copied, like
from course.classroom.problems import Exercise, Wrong


def layer_backward(x, W, h, g):
    """Slopes in x, W and c of a layer h = max(x @ W + c, 0), from the slopes g in h."""
    g = g * (h > 0)
    return g @ W.T, x.T @ g, g.sum(dim=0)


def products(x, W, g, for_c=None, share=1):
    """The three slopes from g behind the sums, or a `share` of those that are summed over images"""
    return g @ W.T, share * (x.T @ g), share * (g if for_c is None else for_c).sum(dim=0)


LAYER_SLIPS = (
    (
        lambda x, W, h, g: products(x, W, g),
        "where a unit is off (its h is 0), nothing comes back: multiply g by (h > 0).",
    ),
    (
        lambda x, W, h, g: products(x, W, g * (x @ W > 0)),
        "x @ W lacks the biases: h itself says which units are on.",
    ),
    (
        lambda x, W, h, g: products(x, W, g * (h <= 0)),
        "the units that are on are shut, and those that are off let the slopes pass.",
    ),
    (
        lambda x, W, h, g: products(x, W, g * h),
        "the slope of max(z, 0) is 1 where the unit is on, however large h is.",
    ),
    (
        lambda x, W, h, g: products(x, W, g * (h > 0), share=1 / len(x)),
        "g is that of a mean already: add up over the images, do not divide again.",
    ),
    (
        lambda x, W, h, g: products(x, W, -g * (h > 0)),
        "the signs are wrong: slopes come back as they are; the step subtracts them, not you.",
    ),
    (
        lambda x, W, h, g: products(x, W, g * (h > 0), for_c=g),
        "the bias stands before max(z, 0), too: its slopes need the factor (h > 0).",
    ),
)


def check_layer(answer):
    for seed, (batch, before, behind) in enumerate(((7, 5, 3), (9, 2, 6), (1, 3, 2))):
        sizes = (batch, before), (before, behind), (batch, behind), (behind,)
        x, W, g, c = (drawn(*size, seed=10 * seed + k) for k, size in enumerate(sizes))
        case = x, W, (x @ W + c).clamp(min=0), g
        with torch.autograd.graph.saved_tensors_hooks(no_autograd, no_autograd), Largest() as most:
            compare_parts(answer, layer_backward, case, ("x", "W", "c"), LAYER_SLIPS)
        if most.elements >= batch * before * behind > before * behind:
            return (
                "but it keeps a table of slopes for every image: x.T @ g adds them up as it goes."
            )
    return "two matrix products: g @ W.T for the layer before, x.T @ g for the weights."


def no_autograd(_):
    raise Wrong("autograd is at work here: write the slopes as products, without it.")


class Largest(TorchDispatchMode):
    """How many elements the largest tensor has that is made within."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.elements = max(self.elements, made.numel())
        return made


def compare_parts(answer, right, case, names, slips):
    """Raise Wrong unless each part of `answer(*case)` is that of `right(*case)`; the first of
    `slips` that gives all the parts has its sentence raised.
    """
    given, wanted = copied(case), right(*copied(case))
    got = function(answer)(*given)
    if got is None:
        raise Wrong("nothing came back: does the function end in return?")
    if not isinstance(got, tuple | list) or len(got) != len(wanted):
        raise Wrong(f"{len(wanted)} things must come back, in this order: {', '.join(names)}.")
    got = [like(a, b, f"the part for {name}") for a, b, name in zip(got, wanted, names)]
    wrong = [name for a, b, name in zip(got, wanted, names) if not close(a, b)]
    for slip, sentence in slips if wrong else ():
        if all(map(close, got, slip(*copied(case)))):
            raise Wrong(sentence)
    if wrong:
        fine = [name for name in names if name not in wrong]
        raise Wrong(f"wrong: {' and '.join(wrong)}; right: {' and '.join(fine) or 'nothing yet'}.")
    if any(not torch.equal(a, b) for a, b in zip(given, case)):
        raise Wrong("the values are right, but what the function was given has changed.")


def stable_cross_entropy(scores, labels):
    """Mean cross-entropy of scores [b, classes], and its slopes in the scores: [b, classes]."""
    shifted = scores - scores.max(dim=1, keepdim=True).values
    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    rows = torch.arange(len(labels))
    slopes = log_p.exp()
    slopes[rows, labels] -= 1
    return -log_p[rows, labels].mean(), slopes / len(labels)


def loss_and(slopes_of, loss_of=None):
    """A slip: loss and slopes from the probabilities p, the one-hot y and the true ones' log p."""

    def slip(scores, labels):
        log_p, y = scores.log_softmax(dim=1), nn.functional.one_hot(labels, scores.shape[1])
        true = log_p[torch.arange(len(labels)), labels]
        loss = loss_of(true) if loss_of else -true.mean()
        return loss, slopes_of(log_p.exp(), y.to(scores), len(labels))

    return slip


ENTROPY_SLIPS = (
    (
        loss_and(lambda p, y, b: p - y, lambda true: -true.sum()),
        "loss and slopes are sums over the images: divide both by their number.",
    ),
    (
        loss_and(lambda p, y, b: p - y),
        "the loss is a mean over the images, its slopes are not yet.",
    ),
    (
        loss_and(lambda p, y, b: (p - y) / b, lambda true: -true.sum()),
        "the slopes are those of a mean, and the loss is a sum over the images.",
    ),
    (
        loss_and(lambda p, y, b: (y - p) / b),
        "the slopes have the wrong sign: a larger score of the true class makes the loss smaller.",
    ),
    (
        loss_and(lambda p, y, b: (y - p) / b, lambda true: true.mean()),
        "everything has the wrong sign: log p is negative, the loss is not.",
    ),
    (
        loss_and(lambda p, y, b: (p - y) / b, lambda true: true.mean()),
        "the loss is minus the mean of log p.",
    ),
    (
        loss_and(lambda p, y, b: p / b),
        "these are probabilities; in the true class the slope is p - 1.",
    ),
    (
        loss_and(lambda p, y, b: p),
        "these are probabilities; in the true class the slope is p - 1, and the mean divides all.",
    ),
    (
        loss_and(lambda p, y, b: (p - y) / b, lambda true: -true.exp().mean().log()),
        "take the logarithm of each image's p first, then the mean.",
    ),
    (
        loss_and(lambda p, y, b: (p - y) / b, lambda true: -true.mean() / torch.tensor(2.0).log()),
        "this is in bits; the loss takes the natural logarithm.",
    ),
    (
        lambda scores, labels: stable_cross_entropy_of_columns(scores, labels),
        "softmax runs over the classes of an image (dim=1), not over the images.",
    ),
)


def stable_cross_entropy_of_columns(scores, labels):
    log_p, y = scores.log_softmax(dim=0), nn.functional.one_hot(labels, scores.shape[1])
    return -(log_p * y).sum(dim=1).mean(), (log_p.exp() - y) / len(labels)


def check_entropy(answer):
    names = "the loss", "the slopes"
    for seed, (batch, classes) in enumerate(((5, 4), (1, 3), (8, 2))):
        case = drawn(batch, classes, seed=seed), torch.arange(batch) % classes
        compare_parts(answer, stable_cross_entropy, case, names, ENTROPY_SLIPS)
    small = drawn(4, 3, seed=7)
    labels = torch.tensor([0, 1, 2, 0])
    far = torch.tensor([[-1000.0, 0, 1], [0, -2000, -1], [1, 0, -1500], [-1200, 0, 2]]).to(small)
    apart = small + torch.tensor([[1500.0], [-1500], [0], [800]]).to(small)
    for scores, sentence in (
        (small + 1000, "for scores of about 1,000, exp is infinite: take each row's largest off."),
        (far, "where p is so small that it is rounded to 0, its logarithm is lost: "
              "log p is score - largest - log(sum of exp(score - largest)), without p."),
        (apart, "one largest score for all rows leaves nothing but zeros in the lower rows: "
                "each row has a largest score of its own."),
    ):  # fmt: skip
        got = function(answer)(scores.clone(), labels.clone())
        if not all(map(close, got, stable_cross_entropy(scores, labels))):
            raise Wrong(sentence)
    return "right for every score, and p - y has the size of the batch in it already."


def fair_split(writers, seed):
    """Row numbers of training, validation and test images; no writer is in two of them."""
    people = writers.unique()
    people = people[torch.randperm(len(people), generator=torch.Generator().manual_seed(seed))]
    fifth = len(people) // 5
    validation, test, training = people.split([fifth, fifth, len(people) - 2 * fifth])
    return tuple(torch.isin(writers, part).nonzero()[:, 0] for part in (training, validation, test))


PARTS = "training", "validation", "test"


def check_split(answer):
    for number, images, seed in ((10, 200, 0), (15, 120, 1), (5, 60, 2), (15, 120, 3)):
        chance = torch.Generator().manual_seed(seed)
        names = 40 + torch.randperm(9 * number, generator=chance)[:number]  # in no progression
        more = torch.randint(number, (images - number,), generator=chance)
        order = torch.randperm(images, generator=chance)
        writers = torch.cat([names, names[more]])[order]  # each has an image, some have many
        parts = split_rows(answer, writers, seed)
        check_rows(parts, images)
        hands = [set(writers[part].tolist()) for part in parts]
        check_hands(hands, number)
        again = split_rows(answer, writers, seed)
        if [set(part.tolist()) for part in parts] != [set(part.tolist()) for part in again]:
            raise Wrong("the same seed gave two different splits: draw with the seed alone.")
    draws = [split_rows(answer, writers, seed) for seed in range(60)]
    drawn = [{frozenset(writers[parts[k]].tolist()) for parts in draws} for k in (1, 2)]
    for name, people in zip(PARTS[1:], drawn):
        if len(people) == 1:
            raise Wrong(
                f"the same people are in the {name} set whatever the seed: draw them by chance."
            )
    for name, people in zip(PARTS[1:], drawn):
        if len(frozenset().union(*people)) < number:
            raise Wrong(
                f"in 60 splits somebody is never in the {name} set: each must have a chance."
            )
        if len(people) <= number:  # neighbours stay together
            raise Wrong("only a few different splits come out: draw the people by chance.")
    return "the test asks about hands that the network has never seen."


def split_rows(answer, writers, seed):
    """An answer's three parts as row numbers; masks are turned into them."""
    parts = function(answer)(writers.clone(), seed)
    if parts is None:
        raise Wrong("nothing came back: does the function end in return?")
    if not isinstance(parts, tuple | list) or len(parts) != 3:
        raise Wrong("three parts must come back, in this order: training, validation, test.")
    rows = "each part is a list of row numbers, or a mask with one True or False a row."
    try:
        parts = [torch.as_tensor(part) for part in parts]
    except (TypeError, ValueError, RuntimeError):  # a set, a list of lists
        raise Wrong(rows) from None
    if any(part.dim() != 1 or len(part) and part.is_floating_point() for part in parts):
        raise Wrong(rows)
    return [part.nonzero()[:, 0] if part.dtype == torch.bool else part.long() for part in parts]


def check_rows(parts, images):
    counts = torch.cat(parts)
    if not all(len(part) for part in parts):
        empty = next(name for name, part in zip(PARTS, parts) if not len(part))
        raise Wrong(f"the {empty} set is empty.")
    if counts.min() < 0 or counts.max() >= images:
        raise Wrong(f"row {int(counts.max())} is none: return row numbers, not people.")
    counts = counts.bincount(minlength=images)
    if counts.max() > 1:
        raise Wrong(f"row {int(counts.argmax())} stands in the parts more than once.")
    if counts.min() == 0:
        raise Wrong(f"{int((counts == 0).sum())} of {images} images are in none of the parts.")


def check_hands(hands, number):
    for a, b in ((0, 2), (1, 2), (0, 1)):
        if both := sorted(hands[a] & hands[b]):
            raise Wrong(
                f"writer {both[0]} has images in the {PARTS[a]} set and in the {PARTS[b]} set: "
                "split the people, and let each one's images follow."
            )
    sizes, fifth = [len(each) for each in hands], number // 5
    if sizes == [fifth, fifth, number - 2 * fifth]:
        raise Wrong("the largest part comes first: training, validation, test.")
    if sizes != [number - 2 * fifth, fifth, fifth]:
        raise Wrong(
            f"the parts have {sizes[0]}, {sizes[1]} and {sizes[2]} of {number} people; a fifth of "
            "the people is for validation, and a fifth for the test."
        )


def train_on_batches(net, batches, rate):
    """One step of gradient descent for each (x, y) of `batches`; returns the loss of each step."""
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_on_batches_with_a_bug(net, batches, rate):
    """One step of gradient descent for each (x, y) of `batches`; returns the loss of each step."""
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=rate), []
    for x, y in batches:
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(net, batches, train, rate=0.1):
    """The weights that `train` leaves behind in a copy of `net`, and what it returns."""
    net = copy.deepcopy(net)
    returned = train(net, [(x.clone(), y.clone()) for x, y in batches], rate)
    return [parameter.detach() for parameter in net.parameters()], returned


def clearing_only(layer):
    """A slip: the gradients of one layer alone are cleared."""

    def train(net, batches, rate):
        for x, y in batches:
            net[layer].zero_grad()
            train_on_batches_with_a_bug(net, [(x, y)], rate)

    return train


TRAINING_SLIPS = (
    (
        train_on_batches_with_a_bug,
        "the gradients of all earlier batches are still in the sum at every step.",
    ),
    (
        lambda net, batches, rate: None,
        "no weight has changed: at the step, the gradients are gone or not there yet.",
    ),
    (clearing_only(0), "the first layer is right; the last one's gradients still add up."),
    (clearing_only(2), "the last layer is right; the first one's gradients still add up."),
    (
        lambda net, batches, rate: train_on_batches(net, batches[::-1], rate),
        "the batches are taken in the wrong order.",
    ),
    (
        lambda net, batches, rate: train_on_batches(net, batches[:1], rate),
        "this is one step, on the first batch; every batch wants one.",
    ),
)


def check_training(answer):
    chance = torch.Generator().manual_seed(5)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=chance, dtype=torch.float64)
    batches = [(drawn(8, 6, seed=k), torch.arange(8).roll(k) % 3) for k in range(4)]
    got, losses = trained(net, batches, function(answer))
    right, wanted = trained(net, batches, train_on_batches)
    if not all(map(close, got, right)):
        for slip, sentence in TRAINING_SLIPS:
            if all(map(close, got, trained(net, batches, slip)[0])):
                raise Wrong(sentence)
        raise Wrong("in each step: clear the gradients, go backward once, step once.")
    if losses is None or len(losses) != len(wanted):
        raise Wrong("the weights are right, but the loss of each step must come back, in a list.")
    if not close([float(torch.as_tensor(each).detach()) for each in losses], wanted):
        raise Wrong("the weights are right, but these are not the losses before each step.")
    return "each step follows the gradient of its own batch alone."


def drawn(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


EXERCISES = [
    Exercise(
        "layer_backward",
        "write layer_backward(x, W, h, g): the slopes in x, W and c of h = max(x @ W + c, 0), "
        "from the slopes g in h.",
        check_layer,
        (
            "first through the activation: its slope is 1 where h > 0, else 0.",
            "the slope of a weight is what went forward times what came back, summed over images.",
            "g = g * (h > 0); then g @ W.T, x.T @ g and g.sum(dim=0).",
        ),
        layer_backward,
    ),
    Exercise(
        "stable_cross_entropy",
        "write stable_cross_entropy(scores, labels): the mean loss, and its slopes in the scores; "
        "scores may be as large as they like.",
        check_entropy,
        (
            "softmax does not change when a number is taken off all scores of an image.",
            "log p = s - log(sum of exp(s)): where s is shifted first, no exp is larger than 1.",
            "slopes = p, less 1 at [torch.arange(len(labels)), labels], divided by len(labels).",
        ),
        stable_cross_entropy,
    ),
    Exercise(
        "fair_split",
        "write fair_split(writers, seed): the row numbers of three parts, so that no writer is in "
        "two of them.",
        check_split,
        (
            "split the people first: writers.unique() has each of them once.",
            "shuffle them by torch.randperm with a torch.Generator() that has the seed.",
            "torch.isin(writers, some_people).nonzero()[:, 0] are the rows of some people.",
        ),
        fair_split,
    ),
    Exercise(
        "train_on_batches",
        "find the bug in train_on_batches and repair it.",
        check_training,
        (
            "print the norm of the first parameter's gradient in each step.",
            "backward() adds to what is in .grad already. Who clears it?",
        ),
        train_on_batches,
        given=train_on_batches_with_a_bug,
    ),
]
