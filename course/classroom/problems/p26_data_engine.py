"""Exercises of notebook 26: what to label next of a pool over ranks, when to stop, a predictor as a
file, and an engine that mines its test set."""

import io
import math

import torch
from torch import nn

from course.classroom.answers import function, on_ranks
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_gather

ROUNDS = 40
ALLOWED = 0.10  # that a stop rule may cost more than somebody who sees the future


def chances_of_rows(rows, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1)


def margins_of(chances):
    best = chances.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


def next_to_label(comm, chances, rows, k):
    """int64 [k], the same on every rank: the rows of all ranks with the smallest margin."""
    best = chances.topk(2, dim=1).values
    margins = best[:, 0] - best[:, 1]
    first = margins.argsort()[:k]
    mine = torch.full((k, 2), torch.inf, dtype=torch.float64)  # a rank may have fewer than k
    mine[: len(first)] = torch.stack([margins[first], rows[first].double()], dim=1)
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, parts, mine)
    table = torch.cat(parts)
    return table[table[:, 0].argsort()[:k], 1].long()


PAIR_BYTES, SLACK_BYTES = 16, 64  # a margin and a number; what counts of rows may take


def parts_of_pool(sizes, seed):
    """For each rank the chances of so many rows of 5 classes, and their numbers, in any order."""
    chances = chances_of_rows(sum(sizes), 5, seed)
    numbers = torch.randperm(3 * sum(sizes), generator=torch.Generator().manual_seed(seed))
    return list(zip(chances.split(sizes), numbers[: sum(sizes)].split(sizes)))


def chosen(comm, answer, parts, k):
    """What an answer chooses, as whole numbers; None if nothing."""
    chances, rows = parts[comm.rank]
    got = answer(comm, chances.clone(), rows.clone(), k)
    return None if got is None else [int(row) for row in torch.as_tensor(got).flatten()]


# {sentence: what somebody else would call the score of a row; the lowest are bought}
OTHER_SCORES = {
    "those are the largest margins: the predictor is sure about them.": lambda chances: (
        -margins_of(chances)
    ),
    "those have the largest entropy: the smallest margin was asked for.": lambda chances: (
        -torch.special.entr(chances).sum(dim=1)
    ),
    "that is the probability of the likeliest class alone: the margin is its lead over the "
    "second.": lambda chances: chances.max(dim=1).values,
    "the first two columns need not be the two likeliest classes.": lambda chances: (
        chances[:, 0] - chances[:, 1]
    ).abs(),
}


def check_next_to_label(answer):
    for seed, (sizes, k) in enumerate([([12], 4), ([9, 30], 6), ([200] * 4, 10), ([7, 2, 15], 5),
                                       ([20, 0, 11, 3], 8)]):  # fmt: skip
        parts, where = parts_of_pool(sizes, seed), f"on {len(sizes)} ranks with {sizes} rows"
        told, trace = on_ranks(chosen, len(sizes), function(answer), parts, k)
        _refuse_choice(told, parts, k, where)
        enough = PAIR_BYTES * k * (len(sizes) - 1)
        rank = max(range(len(sizes)), key=lambda rank: trace.sent_bytes[rank])
        if trace.sent_bytes[rank] > enough + SLACK_BYTES * len(sizes):
            raise Wrong(f"{where} and k = {k}, rank {rank} sends {trace.sent_bytes[rank]} bytes, "
                        f"and {enough} are enough. The k best of all are among the k best of each "
                        "rank: what else has to travel?")  # fmt: skip
    return "the same k rows on every rank, and their bytes do not depend on the pool."


def _refuse_choice(told, parts, k, where):
    """Say what is wrong with the rows that the ranks have chosen."""
    chances, rows = (torch.cat(each) for each in zip(*parts))
    first = told[0]
    if any(got is None for got in told):
        raise Wrong("nothing came back: does the function end in return?")
    if differing := [rank for rank, got in enumerate(told) if got != first]:
        raise Wrong(f"{where}, ranks 0 and {differing[0]} choose {first} and "
                    f"{told[differing[0]]}: all must train on the same labels.")  # fmt: skip
    right = rows[margins_of(chances).argsort()[:k]].tolist()
    if first == right:
        return
    for sentence, score in OTHER_SCORES.items():
        if first == rows[score(chances).argsort()[:k]].tolist():
            raise Wrong(f"{where}, {sentence}")
    if sorted(first) == sorted(right):
        raise Wrong(f"{where} these are the rows, and the most confused comes first.")
    if len(first) != k:
        raise Wrong(f"{where}, {k} rows are wanted, and {len(first)} came.")
    if not set(first) <= set(rows.tolist()):
        raise Wrong(f"{where} there is no row {(set(first) - set(rows.tolist())).pop()}: the "
                    "numbers in `rows` are wanted, not places.")  # fmt: skip
    raise Wrong(f"{where} the smallest margins are those of {right}, and {first} came. The margin "
                "is the largest probability of a row less its second.")  # fmt: skip


def learning_curves(count=60, seed=0):
    """Simulated curves: (labels, true errors, errors on 400 validation images, price of a label,
    price of a per cent of error) of each.  The best round lies between the 4th and the 32nd."""
    generator = torch.Generator().manual_seed(seed)

    def between(low, high):
        return low + (high - low) * torch.rand((), generator=generator).item()

    for number in range(count):
        start, floor, power = between(25, 45), between(1, 5), between(0.6, 1.4)
        step = (10, 20, 50)[number % 3]
        true = [floor + (start - floor) * turn**-power for turn in range(1, ROUNDS + 1)]
        noise = torch.randn(ROUNDS, generator=generator).tolist()
        seen = [max(0.0, t + z * math.sqrt(t * (100 - t) / 400)) for t, z in zip(true, noise)]
        best = math.exp(between(math.log(4), math.log(32)))
        gain = (start - floor) * power * best ** (-power - 1) / step  # of a label, there
        price = (0.4, 2.0, 10.0)[number // 3 % 3]  # of a label
        yield [step * turn for turn in range(1, ROUNDS + 1)], true, seen, price, price / gain


def go_on(labels, errors, label_price, error_price):
    """Whether to buy another round: while the last three rounds were better than the three before
    by more than their labels cost."""
    if len(errors) < 6:
        return True
    gain = (sum(errors[-6:-3]) - sum(errors[-3:])) / 3
    return gain * error_price > (labels[-1] - labels[-4]) * label_price


def rounds_bought(rule, labels, seen, label_price, error_price):
    """In which round a rule stops, counted from 1."""
    for count in range(1, ROUNDS):
        more = function(rule)(labels[:count], seen[:count], label_price, error_price)
        if more is None:
            raise Wrong("nothing came back: does the function return True or False in every case?")
        if not more:
            return count
    return ROUNDS


def check_go_on(answer):
    costs, stops, best_stops, greedy, thrifty, blind = [], [], [], [], [], []
    for labels, true, seen, *prices in learning_curves():
        bill = [prices[0] * n + prices[1] * error for n, error in zip(labels, true)]
        stops.append(rounds_bought(answer, labels, seen, *prices))
        best_stops.append(1 + bill.index(min(bill)))
        costs.append(bill[stops[-1] - 1] / min(bill) - 1)
        greedy.append(rounds_bought(answer, labels, seen, prices[0], 100 * prices[1]))
        thrifty.append(rounds_bought(answer, labels, seen, 100 * prices[0], prices[1]))
        flat = [seen[0] + 7 * k % 5 / 10 for k in range(ROUNDS)]  # they vary, and gain nothing
        blind.append(rounds_bought(answer, labels, flat, *prices))
    over, turn, best = (sum(each) / len(each) for each in (costs, stops, best_stops))
    if set(stops) == {ROUNDS}:
        raise Wrong("it never stops: a label has a price.")
    if set(stops) == {1}:
        raise Wrong("it always stops after the first round: nothing can be measured from one.")
    if stops == greedy:
        raise Wrong("it stops at the same round whatever an error costs: prices have to count.")
    if stops == thrifty:
        raise Wrong("it stops at the same round whatever a label costs: prices have to count.")
    if stops == blind:  # the prices alone betray the best round
        raise Wrong("it stops at the same round whatever the errors are: they have to count.")
    said = f"{over:.1%} more than with the best round, on average over 60 curves"
    if over > ALLOWED:
        where = f"It stops after round {turn:.0f}, on average, and the best is {best:.0f}"
        if turn < best:
            raise Wrong(f"{said}. {where}: too early. One bad round means little: compare means "
                        "of several.")  # fmt: skip
        raise Wrong(f"{said}. {where}: too late. What do the labels of a round cost, and what is "
                    "the fall of the error in it worth?")  # fmt: skip
    return f"it costs {said}, and never saw the future."


def exported_bytes(net, x):
    """The bytes of the exported program of `net`, for any number of images."""
    was = [module.training for module in net.modules()]
    net.eval()
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    for module, training in zip(net.modules(), was):
        module.training = training
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def small_net():
    """A network with batch normalisation that has seen images, and dropout, in training mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5),
                            nn.Linear(16, 3))  # fmt: skip
        for _ in range(5):
            net(2 + 3 * torch.randn(20, 6))
    return net


def check_exported_bytes(answer):
    net, x = small_net(), chances_of_rows(4, 6, 0).float()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    wanted = {rows: chances_of_rows(rows, 6, rows).float() for rows in (4, 1, 7, 300)}
    net[0].eval()  # a module that was frozen on purpose
    modes = [module.training for module in net.modules()]
    file = function(answer)(net, x.clone())
    if [module.training for module in net.modules()] != modes:
        raise Wrong("the network is in another mode than before: put every module's back.")
    if any(not torch.equal(value, before[name]) for name, value in net.state_dict().items()):
        raise Wrong("the network has changed: in training mode, batch normalisation learns from "
                    "what it is given.")  # fmt: skip
    program = _loaded(file)
    net.eval()
    for rows, images in wanted.items():
        _compare_prediction(program, net, rows, images)
    return "equal for 1, 4, 7 and 300 images, from bytes alone."


def _loaded(file):
    """The program in some bytes."""
    if not isinstance(file, bytes | bytearray):
        raise Wrong(f"bytes are wanted, what a file would hold, not {type(file).__name__}.")
    try:
        return torch.export.load(io.BytesIO(file)).module()
    except Exception as trouble:  # whatever is in the bytes
        raise Wrong("the bytes hold no exported program: torch.export.save writes one into a file "
                    "such as io.BytesIO().") from trouble  # fmt: skip


def _compare_prediction(program, net, rows, images):
    """Refuse a program that predicts something else, or nothing, for so many rows."""
    with torch.no_grad():
        try:
            got, again, right = program(images), program(images), net(images)
        except Exception as trouble:  # a guard of the program
            raise Wrong(f"the example had 4 images, and the program refuses {rows}: say which axis "
                        "may differ, in dynamic_shapes.") from trouble  # fmt: skip
    if not torch.equal(got, again):
        raise Wrong("the same images twice, and two predictions: dropout is still at work. Export "
                    "in eval mode.")  # fmt: skip
    if not torch.allclose(got, right, atol=1e-6):
        raise Wrong(f"for {rows} images it predicts otherwise than the network in eval mode.")


def next_frames(chances, drives, labelled, test, k):
    """int64 [k]: the most confused frames of drives that have no frame in the test set."""
    best = chances.topk(2, dim=1).values
    margins = best[:, 0] - best[:, 1]
    margins[labelled] = torch.inf
    margins[torch.isin(drives, drives[test])] = torch.inf
    return margins.argsort()[:k]


def next_frames_with_the_bug(chances, drives, labelled, test, k):
    """int64 [k]: the most confused frames, the most confused first."""
    best = chances.topk(2, dim=1).values
    margins = best[:, 0] - best[:, 1]
    margins[labelled] = torch.inf
    return margins.argsort()[:k]


def check_next_frames(answer):
    for seed, (drive_count, tested) in enumerate([(12, (4, 9)), (12, (0, 7)), (30, (29, 3, 11))]):
        chances = chances_of_rows(40 * drive_count, 5, seed)
        generator = torch.Generator().manual_seed(seed)
        drives = torch.randperm(drive_count, generator=generator).repeat_interleave(40)
        test = torch.cat([(drives == each).nonzero().flatten()[5:15] for each in tested])
        free = (~torch.isin(drives, drives[test])).nonzero().flatten()
        labelled = free[margins_of(chances[free]).argsort()[:9:2]]  # confused, and of open drives
        case = chances, drives, labelled, test, 10
        given = [each.clone() if isinstance(each, torch.Tensor) else each for each in case]
        _refuse_frames(function(answer)(*given), *case)
        if any(isinstance(a, torch.Tensor) and not torch.equal(a, b) for a, b in zip(given, case)):
            raise Wrong("the frames are right, but what the function was given has changed.")
    return "no test frame is mined, nor one of its drive: the report will mean something."


def _refuse_frames(got, chances, drives, labelled, test, k):
    """Say what is wrong with the frames that an answer has chosen."""
    if got is None:
        raise Wrong("nothing came back: does the function end in return?")
    rows = [int(row) for row in torch.as_tensor(got).flatten()]
    if len(rows) != k:
        raise Wrong(f"{k} frames are wanted, and {len(rows)} came.")
    closed = set(drives[test].tolist())
    for row in rows:
        if not 0 <= row < len(chances):
            raise Wrong(f"there is no frame {row}: numbers run from 0 to {len(chances) - 1}.")
        if row in test:
            raise Wrong(f"frame {row} is one of the test set: the error is reported on it.")
        if int(drives[row]) in closed:
            raise Wrong(f"frame {row} is of drive {int(drives[row])}, from which the test has "
                        "frames, too: it is nearly one of them.")  # fmt: skip
        if row in labelled:
            raise Wrong(f"frame {row} has a label already.")
    if rows != next_frames(chances, drives, labelled, test, k).tolist():
        refused = [row for row in next_frames(chances, drives, labelled, test, k).tolist()
                   if row not in rows]  # fmt: skip
        if refused and int(drives[refused[0]]) in set(drives[labelled].tolist()):
            raise Wrong(f"frame {refused[0]} is more confused and may be mined: a drive of which "
                        "some frames have labels is not closed.")  # fmt: skip
        raise Wrong("the frames may be mined, but they are not the most confused, in order.")


EXERCISES = [
    Exercise(
        "next_to_label",
        "write next_to_label(comm, chances, rows, k): on every rank the numbers of the same k "
        "rows, those of all ranks with the smallest margin, the most confused first. `chances` [n, "
        "classes] are those of this rank's `rows` [n]; n may be less than k, and 0.",
        check_next_to_label,
        (
            "chances.topk(2, dim=1).values are the two largest probabilities of each row. Who "
            "needs a row that k others of its own rank beat?",
            "a table [k, 2] of margins and numbers of rows, filled up with infinity where a rank "
            "has fewer than k, has the same shape on all ranks.",
            "all_gather(comm, parts, table) with parts = [torch.empty_like(table) for _ in "
            "range(comm.size)]; then sort torch.cat(parts) by its first column.",
        ),
        next_to_label,
    ),
    Exercise(
        "go_on",
        "write go_on(labels, errors, label_price, error_price): whether to buy another round, so "
        "that labels and errors together cost at most 10 % more than with the best round.",
        check_go_on,
        (
            "what is a per cent less worth, and what did the labels of a round cost?",
            "one round is noise: compare the mean of the last three errors with that of the three "
            "before.",
            "go on while (mean before - mean of the last) * error_price > "
            "(labels[-1] - labels[-4]) * label_price",
        ),
        go_on,
    ),
    Exercise(
        "exported_bytes",
        "write exported_bytes(net, x): the bytes of a saved program that predicts as `net` in eval "
        "mode does, for any number of images; the modes of `net` stay as they were.",
        check_exported_bytes,
        (
            "net.eval() before torch.export.export(net, (x,), ...).",
            'dynamic_shapes=({0: torch.export.Dim("batch", min=1)},)',
            "torch.export.save(program, file) with file = io.BytesIO(), then file.getvalue(); or "
            "export a copy.deepcopy(net), and the modes of `net` stay.",
        ),
        exported_bytes,
    ),
    Exercise(
        "next_frames",
        "find the bug in next_frames(chances, drives, labelled, test, k), whose reports get better "
        "while the predictor does not, and repair it.",
        check_next_frames,
        (
            "which frames may be mined?",
            "a frame of a drive is nearly equal to the next one of that drive.",
            "torch.isin(drives, drives[test]) are all frames of drives that the test knows.",
        ),
        next_frames,
        given=next_frames_with_the_bug,
    ),
]
