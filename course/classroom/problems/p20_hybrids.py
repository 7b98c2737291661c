"""Exercises of notebook 20: what a round of scheme (c) sends, the rows that it shows to all, the
groups of a grid, axes for a cluster, and a gradient that is clipped by a local norm."""

import itertools
import math

import torch

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_gather, all_reduce

RANKS, IMAGES, ACTIVITIES = 8, 128, 9216  # AlexNet on 8 ranks
BYTES_A_WEIGHT = 12  # of float32: weight, gradient, momentum


def check_round_megabytes(answer):
    got, image = number(answer), 4 * ACTIVITIES / 1e6
    right = (RANKS - 1) * IMAGES / RANKS * image
    slips = {
        right / 4: "a float32 number has 4 bytes.",
        right * 1e6: "that is the number of bytes: megabytes were asked for.",
        IMAGES * image: "its own rows a rank has already: they go to the 7 others.",
        RANKS * right: "that is what it sends in all 8 rounds: one was asked for.",
        RANKS * IMAGES * image: "in a round a rank shows an eighth of its images, to 7 others.",
        right / (RANKS - 1): "that is one copy of 16 images: each of the 7 others needs one.",
        2 * right: "that is there and back: the way there was asked for.",
        right * 1e6 / 2**20: "a megabyte is a million bytes here, not 2 to the power of 20.",
    }
    for slip, sentence in slips.items():
        if abs(got / slip - 1) < 0.004:
            raise Wrong(sentence)
    if abs(got / right - 1) > 0.01:
        raise Wrong("that is another number: how many images does a rank show in a round, and to "
                    "how many others?")  # fmt: skip
    return f"16 images x 9,216 activations x 4 bytes, to 7 others: {right:.2f} MB."


def show_rows(comm, x, turn):
    """The rows that all ranks see in round `turn` of scheme (c), in the order of ranks."""
    mine = x.tensor_split(comm.size)[turn]
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, parts, mine)
    return torch.cat(parts)


def rows_of(rank, rows):
    return torch.arange(3 * rows, dtype=torch.float64).view(rows, 3) + 1000 * rank


def use_show_rows(comm, answer, rows):
    """What the answer gives in each round, what it has sent for it, and what became of x."""
    x, told = rows_of(comm.rank, rows), []
    for turn in range(comm.size):
        before = comm.meter.sent_bytes
        shown = answer(comm, x, turn)
        told.append((shown, comm.meter.sent_bytes - before))
    return told, x


def check_show_rows(answer):
    for ranks, rows in ((4, 8), (3, 7), (2, 5), (1, 2)):
        outcomes, _ = on_ranks(use_show_rows, ranks, function(answer), rows)
        everyones = [rows_of(rank, rows) for rank in range(ranks)]
        for rank, (told, x) in enumerate(outcomes):
            where = f"on {ranks} ranks, rank {rank}"
            if not torch.equal(x, everyones[rank]):
                raise Wrong(f"{where} has changed its own rows: backward still needs them.")
            for turn, (shown, sent) in enumerate(told):
                check_rows(f"{where} in round {turn}", shown, everyones, rank, turn)
                part = everyones[0].tensor_split(ranks)[turn].nbytes
                check_sent(f"{where} in round {turn}", sent, (ranks - 1) * part)
    return "everybody sees a part of everybody's rows, and all links carry the same."


def check_rows(where, got, everyones, rank, turn):
    p = len(everyones)
    parts = [x.tensor_split(p)[turn] for x in everyones]
    right = torch.cat(parts)
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"{where} should return rows, not {got!r:.40}.")
    if close(got, right):
        return
    for value, sentence in slips_of_rows(everyones, parts, rank, turn):
        if close(got, value):
            raise Wrong(f"{where} {sentence}")
    if got.shape == right.shape and close(got.sort(0).values, right.sort(0).values):
        raise Wrong(f"{where} has the right rows in another order: rank 0's come first.")
    raise Wrong(f"{where} has {list(got.shape)} other numbers: x.tensor_split(comm.size)[turn] of "
                "every rank was asked for.")  # fmt: skip


def slips_of_rows(everyones, parts, rank, turn):
    """(value, sentence) of what a mistake would have given."""
    p = len(everyones)
    own_numbers = torch.cat([x.tensor_split(p)[r] for r, x in enumerate(everyones)])
    return (
        (torch.cat(everyones), "shows all rows at once: that is scheme (a)."),
        (everyones[turn], "shows the rows of one rank alone: that is scheme (b)."),
        (parts[rank], "has only its own rows: nobody has shown it the others'."),
        (own_numbers, "shows the part that has the number of the rank: in a round all ranks show "
                      "the part that has the number of the round."),
        (sum(parts), "adds rows up: put those of all ranks one below the other."),
        (torch.stack(parts), "has a stack of the ranks' rows: they belong one below the other."),
    )  # fmt: skip


def check_sent(where, sent, enough):
    if sent > 1.5 * enough:
        raise Wrong(f"{where} sends {sent} bytes: the value is right, but {enough} are enough, and "
                    "as many on every rank.")  # fmt: skip


def group_of(rank, along, sizes):
    """The ranks that differ from `rank` along one axis alone, itself among them, in order."""
    names = list(sizes)
    apart = math.prod(sizes[name] for name in names[names.index(along) + 1 :])
    first = rank - rank // apart % sizes[along] * apart
    return [first + apart * place for place in range(sizes[along])]


def placed(rank, sizes):
    """The coordinates of a rank, the last axis fastest."""
    return dict(zip(sizes, list(itertools.product(*map(range, sizes.values())))[rank]))


def slips_of_group(rank, along, sizes):
    """(value, sentence) of what a mistake would have given."""
    ranks, here = range(math.prod(sizes.values())), placed(rank, sizes)
    right, size = group_of(rank, along, sizes), sizes[along]
    turned = dict(reversed(sizes.items()))
    apart = right[1] - right[0] if size > 1 else 1
    return (
        (group_of(rank, along, turned),
         "here the first axis is the fastest: it is the last whose neighbours are consecutive."),
        ([other for other in right if other != rank], "the rank itself belongs to its group."),
        ([other for other in ranks if placed(other, sizes)[along] == here[along]],
         "these have the same place along that axis: a group has the ranks that differ along it, "
         "and along no other."),
        ([rank // size * size + place for place in range(size)],
         "consecutive ranks are a group of the last axis alone."),
        ([rank + apart * place for place in range(size)],
         "a group begins at its rank with place 0, which need not be the rank that asks."),
    )  # fmt: skip


def check_group_of(answer):
    three, two = {"data": 3, "pipeline": 2, "tensor": 2}, {"data": 2, "tensor": 2}
    cases = [(7, "pipeline", three), (7, "data", three), (7, "tensor", three), (3, "data", two),
             (0, "tensor", two), (3, "expert", {"data": 2, "expert": 1, "tensor": 4}),
             (10, "data", {"data": 3, "tensor": 4}),
             (4, "data", {"tensor": 2, "data": 3})]  # fmt: skip
    for rank, along, sizes in cases:
        got, right = function(answer)(rank, along, dict(sizes)), group_of(rank, along, sizes)
        got = got.tolist() if hasattr(got, "tolist") else got
        if not isinstance(got, tuple | list | range):
            raise Wrong(f"a group is a list of ranks, not {got!r:.40}.")
        got = [number(each) for each in got]
        if got == right:
            continue
        shown = ", ".join(f"{each:g}" for each in got)
        where = f"for rank {rank} along {along} of {sizes} you say {shown or 'nobody'}: "
        for value, sentence in slips_of_group(rank, along, sizes):
            if got == value:
                raise Wrong(where + sentence)
        if sorted(got) == right:
            raise Wrong(where + "in the order of ranks, please: a place in a group is a rank.")
        raise Wrong(where + "write down where each rank is, and look which differ there alone.")
    return "right for every grid: these lists are what `Grid` splits the communicator by."


def choose_axes(ranks, per_server, weights, card_bytes):
    """(data, pipeline, tensor): the most copies that fit, with as few stages as possible."""
    found = []
    for data, pipeline in itertools.product(range(1, ranks + 1), repeat=2):
        tensor, left = divmod(ranks, data * pipeline)
        fits = BYTES_A_WEIGHT * weights <= pipeline * tensor * card_bytes
        if left == 0 and fits and tensor and per_server % tensor == 0:
            found.append((data, pipeline, tensor))
    return max(found, key=lambda axes: (axes[0], -axes[1]))


def check_choose_axes(answer):
    cases = [(16, 8, 1e9, 16e9), (16, 8, 4e9, 16e9), (24, 4, 6e9, 16e9), (16, 8, 20e9, 16e9),
             (8, 4, 1.3e9, 16e9), (64, 8, 10e9, 80e9), (12, 4, 7e9, 16e9)]  # fmt: skip
    for case in cases:
        got = function(answer)(*case)
        got = got.tolist() if hasattr(got, "tolist") else got
        if not isinstance(got, tuple | list) or len(got) != 3:
            raise Wrong(f"axes are three numbers (data, pipeline, tensor), not {got!r:.40}.")
        check_axes(tuple(map(number, got)), *case)
    return "as many copies as fit, tensor inside a server, and no more stages than that takes."


def check_axes(got, ranks, per_server, weights, card_bytes):
    """Raises Wrong for axes that cannot be, or are not the best."""
    data, pipeline, tensor = got
    said = "data {:.0f} x pipeline {:.0f} x tensor {:.0f}".format(*got)
    where = f"{ranks} ranks, {per_server} a server, {weights / 1e9:g} billion weights: {said} "
    if data * pipeline * tensor != ranks or any(size < 1 or size != int(size) for size in got):
        raise Wrong(f"{where}does not make {ranks} ranks.")
    kept = BYTES_A_WEIGHT * weights / pipeline / tensor
    if kept > card_bytes:
        raise Wrong(f"{where}leaves {kept / 1e9:.1f} GB on each card, and a card has "
                    f"{card_bytes / 1e9:.0f}.")  # fmt: skip
    if per_server % tensor:
        raise Wrong(f"{where}has tensor groups that do not lie inside a server: their all-reduces "
                    "would cross the network in every layer.")  # fmt: skip
    best = choose_axes(ranks, per_server, weights, card_bytes)
    if data < best[0]:
        raise Wrong(f"{where}fits, but so do {best[0]} copies: cut no finer than you must.")
    if pipeline > best[1]:
        raise Wrong(f"{where}fits, but a pipeline of {best[1]} is enough: inside a server, "
                    "tensor parallel has no idle stage.")  # fmt: skip


def clip_gradients(comm, cut, whole, largest):
    """Scale all gradients so that their norm is `largest` at most, in place; what it was."""
    square = torch.zeros((), dtype=torch.float64)
    for gradient in cut:
        square += gradient.square().sum()
    all_reduce(comm, square)  # the squares of the parts, over the ranks of the cut
    norm = (square + sum(gradient.square().sum() for gradient in whole)).sqrt()
    for gradient in [*cut, *whole]:
        gradient *= min(1.0, largest / norm)
    return norm


def clip_gradients_with_the_bug(comm, cut, whole, largest):
    """Scale all gradients so that their norm is `largest` at most, in place; what it was."""
    norm = sum(gradient.square().sum() for gradient in [*cut, *whole]).sqrt()
    for gradient in [*cut, *whole]:
        gradient *= min(1.0, largest / norm)
    return norm


def gradients_to_clip():
    """Two that will be cut along their first axis, and one that all ranks have alike; rank 0's
    parts have the smallest norm, so that it is not the largest by chance."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(*shape, generator=generator, dtype=torch.float64)
             for shape in ((70, 30), (55,), (400,))]  # fmt: skip
    drawn[0] *= torch.linspace(0.5, 1.5, 70, dtype=torch.float64)[:, None]
    return drawn


def use_clip(comm, answer, largest):
    """The norm that the answer gives, the gradients after it, and the bytes that it sent."""
    *cut, whole = gradients_to_clip()
    mine, alike = [each.tensor_split(comm.size)[comm.rank].clone() for each in cut], [whole]
    before = comm.meter.sent_bytes
    norm = answer(comm, mine, alike, largest)
    return norm, mine, alike[0], comm.meter.sent_bytes - before


def check_clip_gradients(answer):
    for ranks, largest in ((3, 1.0), (3, 1e3), (2, 5.0), (1, 1.0)):
        outcomes, _ = on_ranks(use_clip, ranks, function(answer), largest)
        for rank, (norm, mine, alike, sent) in enumerate(outcomes):
            where = f"on {ranks} ranks, rank {rank}"
            if norm is None:
                raise Wrong(f"{where} returns nothing: the norm before clipping was asked for.")
            if close(number(norm), largest) and largest < 1e3:
                raise Wrong(f"{where} returns the norm after clipping: that before was asked for.")
            check_norm(where, ranks, rank, number(norm))
            check_scaled(where, ranks, rank, mine, alike, largest)
            if sent > 400:
                raise Wrong(f"{where} sends {sent} bytes: the value is right, but the sum of "
                            "squares is one number; gradients need not cross.")  # fmt: skip
    return "one number crosses, and all ranks scale by the same factor."


def check_norm(where, ranks, rank, got):
    *cut, whole = gradients_to_clip()
    parts = [sum(float(each.tensor_split(ranks)[r].square().sum()) for each in cut)
             for r in range(ranks)]  # fmt: skip
    alike, every = float(whole.square().sum()), sum(parts)
    if close(got, math.sqrt(every + alike)):
        return
    for value, sentence in slips_of_norm(parts, alike, rank):
        if close(got, value):
            raise Wrong(f"{where} has {sentence}")
    raise Wrong(f"{where} has the norm {got:.2f}: which squares are summed over ranks, and which "
                "does every rank have already?")  # fmt: skip


def slips_of_norm(parts, alike, rank):
    """(value, sentence) of what a mistake would have given; `parts` and `alike` are squares."""
    ranks, every, own = len(parts), sum(parts), [math.sqrt(part + alike) for part in parts]
    return (
        (own[rank], f"its own norm, {own[rank]:.2f}, where that of the whole gradient is "
         f"{math.sqrt(every + alike):.2f}: each rank scales by another factor, and what all have "
         "alike is not alike any more."),
        (math.sqrt(every + ranks * alike),
         f"a norm in which the gradients that all have alike count {ranks} times."),
        (math.sqrt(every), "a norm without the gradients that all have alike."),
        (sum(own), "the sum of the ranks' norms: add up squares, and take the root of the sum."),
        (max(own), "the largest of the ranks' norms: add up squares, and take the root."),
        (math.sqrt(every / ranks + alike),
         "a mean over ranks: the parts of a vector are no samples, and their squares are summed."),
        (every + alike, "the square of the norm: take the root."),
    )  # fmt: skip


def check_scaled(where, ranks, rank, mine, alike, largest):
    *cut, whole = gradients_to_clip()
    factor = min(1.0, largest / math.sqrt(sum(float(g.square().sum()) for g in (*cut, whole))))
    expected = [each.tensor_split(ranks)[rank] for each in cut] + [whole]
    for got, before in zip([*mine, alike], expected):
        if close(got, factor * before):
            continue
        if close(got, before):
            raise Wrong(f"{where} has the right norm, and a gradient that is not scaled in place.")
        if factor == 1.0:
            raise Wrong(f"{where} scales gradients that are shorter than `largest`: these stay.")
        raise Wrong(f"{where} scales by another factor than largest / norm.")


EXERCISES = [
    Exercise(
        "round_megabytes",
        "8 ranks with 128 images each train AlexNet by scheme (c), whose convolutions give 9,216 "
        "activations an image, in float32: how many megabytes of activations does a rank send in "
        "one round, on the way there?",
        check_round_megabytes,
        (
            "there are 8 rounds, and in each of them a rank shows an eighth of its images.",
            "each of the 7 other ranks needs them.",
        ),
        "128 / 8 = 16 images x 9,216 x 4 bytes = 0.59 MB, to 7 others: 4.13 MB.",
    ),
    Exercise(
        "show_rows",
        "write show_rows(comm, x, turn): in round `turn` of scheme (c) every rank shows part "
        "`turn` of its rows, x.tensor_split(comm.size)[turn], and all ranks see those of all, in "
        "the order of ranks.",
        check_show_rows,
        (
            "all ranks have as many rows, so everybody knows how large the others' parts are.",
            "all_gather(comm, parts, mine) fills the list `parts`, one tensor a rank.",
            "torch.cat(parts) puts them one below the other.",
        ),
        show_rows,
    ),
    Exercise(
        "group_of",
        "write group_of(rank, along, sizes): the list of ranks that are in one group with `rank` "
        "along the axis `along` of a grid of these sizes {axis: ranks}, the last axis fastest.",
        check_group_of,
        (
            "neighbours along the last axis are 1 apart; along the one before it they are as far "
            "apart as the last axis is long.",
            "along an axis, ranks are math.prod(the sizes behind it) apart.",
            "the place of a rank along it is rank // apart % sizes[along]: the group begins so "
            "many steps before.",
        ),
        group_of,
    ),
    Exercise(
        "choose_axes",
        "write choose_axes(ranks, per_server, weights, card_bytes): the sizes (data, pipeline, "
        "tensor) of a grid in which 12 bytes a weight, divided over pipeline x tensor, fit a "
        "card, tensor divides the ranks of a server, data is as large as possible and, of these, "
        "pipeline as small as possible.",
        check_choose_axes,
        (
            "try all data and pipeline from 1 to ranks; tensor is what is left.",
            "12 * weights <= pipeline * tensor * card_bytes, and per_server % tensor == 0.",
            "max(found, key=lambda axes: (axes[0], -axes[1]))",
        ),
        choose_axes,
    ),
    Exercise(
        "clip_gradients",
        "find the bug in clip_gradients(comm, cut, whole, largest), which is right on one rank, "
        "and repair it: `cut` are this rank's parts of gradients that are cut over ranks, `whole` "
        "those that all ranks have alike.",
        check_clip_gradients,
        (
            "by which factor does rank 0 scale `whole`, and by which does rank 1?",
            "a norm is the root of a sum of squares: which squares does a rank not have?",
            "all_reduce(comm, square) of the squares of `cut` alone; then add those of `whole`.",
        ),
        clip_gradients,
        given=clip_gradients_with_the_bug,
    ),
]
