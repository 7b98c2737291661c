"""Errors removed, a split, features and a leak: answers that were really likely."""

import torch

from course.classroom.problems import p03_features as p03
from course.learning.images.whitening import even_contrast
from course.learning.training import classifier
from tests.classroom.gallery import Gallery, gallery_tests

# Better than a guess


def errors_stub(accuracy, share):
    """The share of the best constant answer's errors that is avoided."""
    ...


def errors_counted(accuracy, share):
    wrong, constant = 1 - accuracy, share if share < 0.5 else 1 - share
    return torch.tensor(1 - wrong / constant)


def errors_rounded(accuracy, share):
    return round(p03.errors_removed(accuracy, share), 4)


def errors_in_per_cent(accuracy, share):
    return 100 * p03.errors_removed(accuracy, share)


def errors_of_a_coin(accuracy, share):
    return 2 * accuracy - 1


def errors_of_always_no(accuracy, share):
    return (accuracy - 1 + share) / share


def errors_of_always_yes(accuracy, share):
    return (accuracy - share) / (1 - share)


def errors_in_points(accuracy, share):
    return accuracy - max(share, 1 - share)


def right_answers_compared(accuracy, share):
    return accuracy / max(share, 1 - share)


def errors_left(accuracy, share):
    return (1 - accuracy) / min(share, 1 - share)


def more_right_answers(accuracy, share):
    return accuracy / max(share, 1 - share) - 1


def errors_never_more(accuracy, share):
    return max(0, p03.errors_removed(accuracy, share))


def errors_not_asked(accuracy, share):
    return accuracy


def errors_printed(accuracy, share):
    str(p03.errors_removed(accuracy, share))


# The split


def split_stub(groups, part, seed):
    """Which rows are for the test, bool [count]."""
    ...


def split_in_loops(groups, part, seed):
    names = sorted(set(groups.tolist()))
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    test = {names[k] for k in order[: int(part * len(names) + 0.5)]}
    return torch.tensor([name in test for name in groups.tolist()])


def split_of_the_package(groups, part, seed):
    return classifier.split(groups, part, seed)[1]


def split_as_a_list(groups, part, seed):
    return p03.split_by_group(groups, part, seed).tolist()


def split_by_rows(groups, part, seed):
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed))
    return order < part * len(groups)


def split_in_the_middle(groups, part, seed):
    return torch.arange(len(groups)) >= (1 - part) * len(groups)


def split_the_other_way(groups, part, seed):
    return ~p03.split_by_group(groups, part, seed)


def split_without_the_seed(groups, part, seed):
    every = groups.unique()
    order = torch.randperm(len(every))
    return torch.isin(groups, every[order[: round(part * len(every))]])


def split_that_never_changes(groups, part, seed):
    every = groups.unique()
    return torch.isin(groups, every[: round(part * len(every))])


def split_of_one_group(groups, part, seed):
    every = groups.unique()
    return groups == every[seed % len(every)]


def split_into_numbers(groups, part, seed):
    return p03.split_by_group(groups, part, seed).nonzero().flatten()


def split_into_zeros_and_ones(groups, part, seed):
    return p03.split_by_group(groups, part, seed).long()


def split_into_both(groups, part, seed):
    return classifier.split(groups, part, seed)


def split_that_keeps_one(groups, part, seed):
    every = groups.unique()
    order = torch.randperm(len(every) - 1, generator=torch.Generator().manual_seed(seed))
    return torch.isin(groups, every[order[: round(part * len(every))]])


def split_by_rolling(groups, part, seed):
    every = groups.unique()
    return torch.isin(groups, every.roll(seed)[: round(part * len(every))])


def split_of_a_part_of_the_rows(groups, part, seed):
    every, test = groups.unique(), torch.zeros(len(groups), dtype=torch.bool)
    for group in every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))]:
        if test.sum() < part * len(groups):
            test |= groups == group
    return test


def split_with_one_more(groups, part, seed):
    every = groups.unique()
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return torch.isin(groups, every[order[: int(part * len(every)) + 1]])


def split_into_groups(groups, part, seed):
    every = groups.unique()
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return order < round(part * len(every))


# The features


def features_stub(pictures):
    """At most 4 numbers per frame."""
    raise NotImplementedError


def features_at_many_places(pictures):
    even = even_contrast(pictures)
    rows = even[:, :, 4:20].mean(dim=2)
    low = rows.unfold(1, 4, 1).mean(dim=2)  # [count, 21]
    answers = torch.minimum(low[:, :-8], low[:, 8:]) - low[:, 4:-4]
    sides = (even[:, :, :3].mean(dim=(1, 2)) + even[:, :, 21:].mean(dim=(1, 2))) / 2
    return torch.stack([answers[:, :10].amax(dim=1), even[:, :, 6:18].mean(dim=(1, 2)) - sides], 1)


def features_and_two_more(pictures):
    even = even_contrast(pictures)
    more = torch.stack([even[:, 6:18, 6:18].mean(dim=(1, 2)), even[:, :, 8:16].mean(dim=(1, 2))], 1)
    return torch.cat([p03.travelling_features(pictures), more], dim=1)


def features_at_one_place(pictures):
    rows = even_contrast(pictures)[:, :, 4:20].mean(dim=2)
    eyes = rows[:, 4:8].mean(dim=1)
    return torch.stack([rows[:, :3].mean(dim=1) - eyes, rows[:, 9:13].mean(dim=1) - eyes], dim=1)


def features_of_one_question(pictures):
    return p03.travelling_features(pictures)[:, 0]


def features_of_two_pixels(pictures):
    return pictures[:, (6, 11), (6, 6)]


def features_in_a_list(pictures):
    features = p03.travelling_features(pictures)
    return [features[:, 0], features[:, 1]]


def features_of_one_question_twice(pictures):
    eyes = p03.travelling_features(pictures)[:, :1]
    return torch.cat([eyes, eyes], 1)


def features_of_all_pixels(pictures):
    return even_contrast(pictures).flatten(1)


def features_beside_others(pictures):
    found = p03.travelling_features(pictures)
    return (found - found.mean(dim=0)) / found.std(dim=0)


def features_by_place_in_the_list(pictures):
    return torch.arange(len(pictures)).float()


def features_of_the_whole_batch(pictures):
    return even_contrast(pictures).mean(dim=0)[:, :4]


def features_in_place(pictures):
    pictures -= pictures.mean(dim=(1, 2), keepdim=True)
    return p03.travelling_features(pictures)


def features_forgotten(pictures):
    found = p03.travelling_features(pictures)
    found.tolist()


def features_divided_by_zero(pictures):
    return 1 / (pictures[:, 0, 0] - pictures[:, 0, 0])


def features_that_never_change(pictures):
    return torch.ones(len(pictures))


# The best features


def best_in_other_words(features, labels, train, keep):
    seen, known = features[train], labels[train]
    apart = (seen[known == 1].mean(dim=0) - seen[known == 0].mean(dim=0)) / seen.std(dim=0)
    best = apart.abs().argsort(descending=True)[:keep]
    machine = classifier.fit(seen[:, best], known, decay=0.1)
    return machine.accuracy(features[~train][:, best], labels[~train])


def best_with_the_spread_repaired(features, labels, train, keep):
    return p03.chosen_from(p03.everything, p03.learned, p03.unseen)(features, labels, train, keep)


def best_with_the_means_repaired(features, labels, train, keep):
    return p03.chosen_from(p03.learned, p03.everything, p03.unseen)(features, labels, train, keep)


def best_of_the_test(features, labels, train, keep):
    return p03.chosen_from(p03.unseen, p03.unseen, p03.unseen)(features, labels, train, keep)


def best_judged_on_what_it_knows(features, labels, train, keep):
    return p03.chosen_from(p03.learned, p03.learned, p03.learned)(features, labels, train, keep)


def best_judged_on_all(features, labels, train, keep):
    return p03.chosen_from(p03.learned, p03.learned, p03.everything)(features, labels, train, keep)


def best_with_a_copy_of_the_bug(features, labels, train, keep):
    return p03.accuracy_of_the_best_with_a_bug(features, labels, train, keep)


def best_without_a_choice(features, labels, train, keep):
    machine = classifier.fit(features[train], labels[train], decay=0.1)
    return machine.accuracy(features[~train], labels[~train])


def best_that_only_prints(features, labels, train, keep):
    str(p03.accuracy_of_the_best(features, labels, train, keep))


GALLERIES = [
    Gallery(
        "errors_removed",
        errors_stub,
        [p03.errors_removed, errors_counted, errors_rounded],
        {
            "return a share, 0 to 1.": errors_in_per_cent,
            "half is the baseline only if": errors_of_a_coin,
            "«always no» is not the best": errors_of_always_no,
            "«always yes» is not the best": errors_of_always_yes,
            "these are points": errors_in_points,
            "the question is about errors": right_answers_compared,
            "errors that is left": errors_left,
            "not by its right answers": more_right_answers,
            "then the result is negative": errors_never_more,
            "Divide the second number by the first.": errors_not_asked,
            "nothing came back": errors_printed,
            "a function is wanted": 0.48,
        },
    ),
    Gallery(
        "split_by_group",
        split_stub,
        [p03.split_by_group, split_in_loops, split_of_the_package, split_as_a_list],
        {
            "groups are on both sides. Draw groups": split_by_rows,
            "a leak: ": split_in_the_middle,
            "the sides are exchanged": split_the_other_way,
            "the same seed gave another split": split_without_the_seed,
            "every seed gives the same split": split_that_never_changes,
            "1 of 10 groups are in the test; 0.3 of them is 3.": split_of_one_group,
            "one True or False per row is wanted, not torch.int64 [20].": split_into_numbers,
            "one True or False per row is wanted, not torch.int64 [60].": split_into_zeros_and_ones,
            "one bool per row, not a pair.": split_into_both,
            "some group never changes sides": split_that_keeps_one,
            "only a few different splits come out": split_by_rolling,
            "of 40 groups are in the test; 0.5 of them is 20.": split_of_a_part_of_the_rows,
            "4 of 10 groups are in the test; 0.3 of them is 3.": split_with_one_more,
            "one True or False per row has shape [60], not [10].": split_into_groups,
        },
    ),
    Gallery(
        "travelling_features",
        features_stub,
        [p03.travelling_features, features_at_many_places, features_and_two_more],
        {
            "the test accuracy is 61%; 72% are wanted. Faces sit": features_at_one_place,
            "72% are wanted. Faces sit up": features_of_two_pixels,
            "72% are wanted. One question alone": features_of_one_question,
            "72% are wanted. That is near: ask": features_of_one_question_twice,
            "torch.stack(columns, dim=1) makes it.": features_in_a_list,
            "at most 4 numbers per frame, not 576.": features_of_all_pixels,
            "depend on the frames beside it": features_beside_others,
            "work each out from its own pixels.": features_by_place_in_the_list,
            "one row per frame is wanted, not [24, 4].": features_of_the_whole_batch,
            "the pictures were changed": features_in_place,
            "nothing came back": features_forgotten,
            "some features are nan or infinite": features_divided_by_zero,
            "number 0 is the same for every frame.": features_that_never_change,
        },
    ),
    Gallery(
        "accuracy_of_the_best",
        p03.accuracy_of_the_best_with_a_bug,
        [p03.accuracy_of_the_best, best_in_other_words],
        {
            "still the leak": best_with_a_copy_of_the_bug,
            "faces and others still come from all frames": best_with_the_spread_repaired,
            "the spread belongs to the frames in train": best_with_the_means_repaired,
            "chosen on the frames of the test alone": best_of_the_test,
            "this is tested on the frames that it was trained on": best_judged_on_what_it_knows,
            "this is tested on all frames": best_judged_on_all,
            "no known leak, but another number": best_without_a_choice,
            "nothing came back": best_that_only_prints,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
