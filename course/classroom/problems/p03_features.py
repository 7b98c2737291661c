"""Exercises of notebook 03: better than a guess, an honest split, features that travel, a bug."""

from functools import cache

import torch

from course.classroom.answers import function
from course.classroom.comparison import close, compare, like
from course.classroom.problems import Exercise, Wrong
from course.learning.images import faces, frames
from course.learning.images import photographs as images
from course.learning.images.whitening import even_contrast
from course.learning.training import classifier

ELSEWHERE = ("chelsea", "coffee", "gravel", "rocket")
MOST_FEATURES, PASS_MARK = 4, 0.72


def errors_removed(accuracy, share):
    """The share of the best constant answer's errors that is avoided."""
    fewest = min(share, 1 - share)
    return (fewest - (1 - accuracy)) / fewest


def check_errors(answer):
    cases = ((0.817, 13_026 / 37_000), (0.9, 0.5), (0.97, 0.8), (0.55, 0.7), (0.75, 0.25))
    compare(
        answer,
        errors_removed,
        cases,
        ERROR_SLIPS,
        otherwise="how many errors has the best constant answer, and how many fewer has the "
        "classifier? Divide the second number by the first.",
        shape_is="one number",
        tolerance=2e-3,
    )
    return "81.7 % removes about half of the errors; 90 % of balanced frames removes four fifths."


ERROR_SLIPS = (
    (lambda a, s: 100 * errors_removed(a, s), "that is in per cent; return a share, 0 to 1."),
    (lambda a, s: (a - 0.5) / 0.5, "half is the baseline only if half of the frames show a face."),
    (
        lambda a, s: (a - 1 + s) / s,
        "«always no» is not the best constant answer if most frames show a face.",
    ),
    (
        lambda a, s: (a - s) / (1 - s),
        "«always yes» is not the best constant answer if most frames show none.",
    ),
    (lambda a, s: a - max(s, 1 - s), "these are points; divide by the errors of the baseline."),
    (lambda a, s: a / max(s, 1 - s), "this compares right answers, the question is about errors."),
    (
        lambda a, s: 1 - errors_removed(a, s),
        "this is the share of errors that is left, not the share that is avoided.",
    ),
    (
        lambda a, s: (a - max(s, 1 - s)) / max(s, 1 - s),
        "divide by the errors of the constant answer, not by its right answers.",
    ),
    (
        lambda a, s: max(0.0, errors_removed(a, s)),
        "a classifier can be worse than a constant answer: then the result is negative.",
    ),
)


def split_by_group(groups, part, seed):
    """Which rows are for the test, bool [count]: all rows of `part` of the groups, drawn at random.

    groups is int64 [count].
    """
    every = groups.unique()
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return torch.isin(groups, every[order[: round(part * len(every))]])


def check_split(answer):
    for count, owners, part in ((60, 10, 0.3), (301, 40, 0.5), (45, 9, 0.6)):
        groups = drawn_groups(count, owners)
        test = one_split(answer, groups, part, seed=5)
        if both := classifier.leaks(groups[~test], groups[test]):
            of = f"{len(both)} of {owners} groups"
            raise Wrong(f"a leak: {of} are on both sides. Draw groups, not rows.")
        check_part(groups, test, part)
        if not torch.equal(test, one_split(answer, groups, part, seed=5)):
            raise Wrong(
                "the same seed gave another split: use torch.Generator().manual_seed(seed)."
            )
    check_chance(answer)
    return "no group is on both sides, whatever the numbers of the groups."


def one_split(answer, groups, part, seed):
    """What the answer makes of a copy of groups: a bool [count]."""
    test = function(answer)(groups.clone(), part, seed)
    if isinstance(test, tuple):
        raise Wrong("only the rows for the test are wanted, one bool per row, not a pair.")
    if isinstance(test, torch.Tensor) and test.dtype != torch.bool:
        raise Wrong(f"one True or False per row is wanted, not {test.dtype} {list(test.shape)}.")
    return like(test, torch.zeros(len(groups), dtype=torch.bool), "one True or False per row")


def check_part(groups, test, part):
    """Raise Wrong unless `part` of the groups are in the test."""
    chosen, every = len(groups[test].unique()), len(groups.unique())
    wanted = round(part * every)
    if chosen == every - wanted != wanted:
        raise Wrong("the sides are exchanged: True is for the test.")
    if abs(chosen - part * every) >= 1:
        raise Wrong(f"{chosen} of {every} groups are in the test; {part:.2g} of them is {wanted}.")


def check_chance(answer):
    """Raise Wrong unless other seeds choose other groups, and each has its chance."""
    groups = drawn_groups(120, 12)
    tests = torch.stack([one_split(answer, groups, 0.5, seed) for seed in range(40)])
    for test in tests:
        check_part(groups, test, 0.5)
    if (tests == tests[0]).all():
        raise Wrong("every seed gives the same split: draw the groups at random.")
    if (tests == tests[0]).all(dim=0).any():
        raise Wrong("in 40 splits some group never changes sides: each must have its chance.")
    if len(tests.unique(dim=0)) <= 12:  # as many as there are groups: neighbours stay together
        raise Wrong("only a few different splits come out: draw the groups at random.")


def drawn_groups(count, owners):
    """Numbers of persons and, below 0, of photographs, in no order, int64 [count]."""
    generator = torch.Generator().manual_seed(count)
    names = torch.randperm(3 * owners, generator=generator)[:owners] - owners
    rows = torch.cat([torch.arange(owners), torch.randint(owners, (count,), generator=generator)])
    return names[rows[:count][torch.randperm(count, generator=generator)]]


def travelling_features(pictures):
    """Eyes darker than above and below, wherever; middle brighter than sides: [count, 2]."""
    even = even_contrast(pictures)
    rows = even[:, :, 4:20].mean(dim=2)
    found = []
    for top in range(10):
        eyes = rows[:, top + 3 : top + 7].mean(dim=1)
        forehead, cheeks = rows[:, top : top + 3], rows[:, top + 8 : top + 12]
        found.append(torch.minimum(forehead.mean(dim=1), cheeks.mean(dim=1)) - eyes)
    sides = torch.cat([even[:, :, :3], even[:, :, 21:]], dim=2).mean(dim=(1, 2))
    middle = even[:, :, 6:18].mean(dim=(1, 2))
    return torch.stack([torch.stack(found).amax(dim=0), middle - sides], dim=1)


@cache
def wandering(half, places, seed, count=400):
    """Windows [count, 24, 24] of frames, up to 4 pixels beside the middle, and labels [count]."""
    photographs = [images.photograph(name) for name in places]
    made = frames.frames(faces.lfw_faces(half), photographs, count, 0.5, seed)
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 9, (count, 2), generator=generator).tolist()
    windows = [f[0, d : d + 24, a : a + 24] for f, (d, a) in zip(made.images, corners, strict=True)]
    mixed = torch.randperm(count, generator=generator)
    return torch.stack(windows)[mixed], made.labels[mixed]


def check_features(answer):
    known = [name for name in images.PHOTOGRAPHS if name not in (*ELSEWHERE, *images.HEADS)]
    pictures, labels = wandering("train", tuple(known), seed=11)
    strangers, theirs = wandering("test", ELSEWHERE, seed=12)
    features, unseen = features_of(answer, pictures), features_of(answer, strangers)
    alone = features_of(answer, strangers[:7].flip(0)).flip(0)
    if not close(alone, unseen[:7], 1e-3):
        raise Wrong(
            "a frame's features depend on the frames beside it: work each out from its own pixels."
        )
    if (constant := (features == features[0]).all(dim=0)).any():
        raise Wrong(f"number {int(constant.int().argmax())} is the same for every frame.")
    machine = classifier.fit(features, labels, decay=0.01)
    found, on_own = machine.accuracy(unseen, theirs), machine.accuracy(features, labels)
    if found >= PASS_MARK:
        return f"{found:.0%} test accuracy on faces that may sit anywhere: features that travel."
    words = advice(on_own, features.shape[1])
    raise Wrong(f"the test accuracy is {found:.0%}; {PASS_MARK:.0%} are wanted. {words}")


def features_of(answer, pictures):
    """The answer's features of a copy of `pictures` as a float64 [count, 1 to MOST_FEATURES]."""
    given = pictures.clone()
    features = function(answer)(given)
    if features is None:
        raise Wrong("nothing came back: does the function end in return?")
    if not torch.equal(given, pictures):
        raise Wrong("the pictures were changed: pictures = pictures - ... makes new ones.")
    try:
        features = torch.as_tensor(features).detach().double()
    except (TypeError, ValueError, RuntimeError):  # a list of columns, a pair, a dictionary
        raise Wrong(
            "one tensor [count, numbers] is wanted: torch.stack(columns, dim=1) makes it."
        ) from None
    features = features[:, None] if features.dim() == 1 else features
    if features.dim() != 2 or len(features) != len(pictures):
        raise Wrong(f"one row per frame is wanted, not {list(features.shape)}.")
    if features.shape[1] > MOST_FEATURES:
        raise Wrong(f"at most {MOST_FEATURES} numbers per frame, not {features.shape[1]}.")
    if not features.isfinite().all():
        raise Wrong("some features are nan or infinite: is there a division by 0?")
    return features


def advice(on_own, numbers):
    """What may help `numbers` features that are right about a share `on_own` of known frames."""
    if numbers == 1:
        return "One question alone is not enough: ask another, too, that depends on no place."
    if PASS_MARK <= on_own < PASS_MARK + 0.05:
        return "That is near: ask another question, too, that depends on no place."
    if on_own >= PASS_MARK:
        return "The training accuracy is good enough: do they know those frames too well?"
    return "Faces sit up to 4 pixels off: ask at several places, and keep the strongest answer."


def accuracy_of_the_best(features, labels, train, keep):
    """Accuracy on the frames not in `train`, with the `keep` features that differ most."""
    spread = features[train].std(dim=0)
    faces, others = features[train & (labels == 1)], features[train & (labels == 0)]
    apart = (faces.mean(dim=0) - others.mean(dim=0)).abs() / spread
    best = apart.topk(keep).indices
    machine = classifier.fit(features[train][:, best], labels[train], decay=0.1)
    return machine.accuracy(features[~train][:, best], labels[~train])


def accuracy_of_the_best_with_a_bug(features, labels, train, keep):
    """Accuracy on the frames not in `train`, with the `keep` features that differ most."""
    spread = features.std(dim=0)
    faces, others = features[labels == 1], features[labels == 0]
    apart = (faces.mean(dim=0) - others.mean(dim=0)).abs() / spread
    best = apart.topk(keep).indices
    machine = classifier.fit(features[train][:, best], labels[train], decay=0.1)
    return machine.accuracy(features[~train][:, best], labels[~train])


def chosen_from(rows_of_means, rows_of_spread, judged_on):
    """accuracy_of_the_best with other rows: each argument is a function of train, bool [count]."""

    def accuracy(features, labels, train, keep):
        spread, rows = features[rows_of_spread(train)].std(dim=0), rows_of_means(train)
        faces, others = features[rows & (labels == 1)], features[rows & (labels == 0)]
        apart = (faces.mean(dim=0) - others.mean(dim=0)).abs() / spread
        best = apart.topk(keep).indices
        machine = classifier.fit(features[train][:, best], labels[train], decay=0.1)
        test = judged_on(train)
        return machine.accuracy(features[test][:, best], labels[test])

    return accuracy


def learned(train):
    return train


def unseen(train):
    return ~train


def everything(train):
    return torch.ones_like(train)


SLIPS = (
    (
        accuracy_of_the_best_with_a_bug,
        "still the leak: labels of the test have a say in which features are kept.",
    ),
    (
        chosen_from(everything, learned, unseen),
        "a leak is left: faces and others still come from all frames, those of the test too.",
    ),
    (
        chosen_from(learned, everything, unseen),
        "one leak is left: the spread belongs to the frames in train, too.",
    ),
    (
        chosen_from(unseen, unseen, unseen),
        "worse: now the features are chosen on the frames of the test alone.",
    ),
    (
        chosen_from(learned, learned, learned),
        "this is tested on the frames that it was trained on; the test frames are not in train.",
    ),
    (
        chosen_from(learned, learned, everything),
        "this is tested on all frames, and half of them are training frames.",
    ),
)


def check_best(answer):
    sizes = (121, 300, 20), (180, 500, 15), (91, 60, 3)
    cases = [(*coins(count, width, seed), keep) for seed, (count, width, keep) in enumerate(sizes)]
    otherwise = (
        "no known leak, but another number: keep the features that differ most on the frames in "
        "train, train on those frames, test on the others."
    )
    compare(answer, accuracy_of_the_best, cases, SLIPS, otherwise=otherwise)
    return "about half right, as it should be with labels drawn by a coin."


def coins(count, width, seed):
    """Features [count, width], labels [count] of no relation to them, train bool [count].

    A few features are enormous in one frame of the test.
    """
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64)
    labels = torch.arange(count) % 2
    train = torch.randperm(count, generator=generator) < count // 2
    features[int((~train).nonzero()[0]), ::2] *= 50
    return features, labels, train


EXERCISES = [
    Exercise(
        "errors_removed",
        "write errors_removed(accuracy, share): the share of the best constant answer's errors "
        "that the classifier avoids.",
        check_errors,
        (
            "with 30 % faces the best constant answer is «no», and it is wrong about 30 %.",
            "an accuracy of 0.9 leaves 0.1 errors. How many of the 0.3 are avoided?",
        ),
        errors_removed,
    ),
    Exercise(
        "split_by_group",
        "write split_by_group(groups, part, seed): True for the rows of the test, which are all "
        "rows of a random part of the groups.",
        check_split,
        (
            "groups.unique() is every group once; draw some of these.",
            "torch.randperm(n, generator=torch.Generator().manual_seed(seed)) mixes n numbers.",
            "torch.isin(groups, chosen) is True where a row's group is among the chosen ones.",
        ),
        split_by_group,
    ),
    Exercise(
        "travelling_features",
        "write travelling_features(pictures): at most 4 numbers per frame, with a test accuracy of "
        "72 % on faces up to 4 pixels off.",
        check_features,
        (
            "rows = even_contrast(pictures)[:, :, 4:20].mean(dim=2) is the brightness of each row.",
            "ask «darker than above and below?» at each height, and keep the largest answer: amax.",
            "both questions at once: the smaller of the two answers, at each height. Another "
            "number needs no height: is the middle brighter than the sides?",
        ),
        travelling_features,
    ),
    Exercise(
        "accuracy_of_the_best",
        "find the bug in accuracy_of_the_best and repair it, so that it cannot predict coins.",
        check_best,
        (
            "which lines may look at the frames of the test?",
            "only the last one. Which others do?",
            "features[train], labels[train], and train & (labels == 1).",
        ),
        accuracy_of_the_best,
        given=accuracy_of_the_best_with_a_bug,
    ),
]
