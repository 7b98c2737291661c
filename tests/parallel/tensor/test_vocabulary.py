"""A cut vocabulary: vectors and losses are those of the whole one, and no logits are gathered."""

import itertools
import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from course.parallel.tensor import ColumnLinear, VocabEmbedding, vocab_cross_entropy
from course.worlds import RankError, run
from tests.parallel.tensor.serial import distance, drawn, slope_errors, some_cuts, worst


def tokens_of(shape, vocabulary, seed):
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def embedded(comm, count):
    draw, errors = random.Random(comm.size), []
    for number in range(count):
        vocabulary, features = draw.randint(1, 9), draw.randint(1, 4)
        padding = draw.choice([None, 0, vocabulary - 1])
        torch.manual_seed(number)
        whole = nn.Embedding(vocabulary, features, padding).double()
        cuts = draw.choice([None, some_cuts(draw, vocabulary, comm.size)])
        mine = VocabEmbedding(comm, whole, cuts)
        for use in range(5):
            shape = 2, draw.randint(0, 5)
            tokens = tokens_of(shape, vocabulary, use)
            rows = draw.choice([None, some_cuts(draw, shape[1], comm.size)])
            here = slice(None) if rows is None else slice(*rows[comm.rank : comm.rank + 2])
            expected, found = whole(tokens), mine(tokens, rows)
            y = drawn(*expected.shape, seed=use)
            for net in (whole, mine):
                net.zero_grad()
            (expected * y).sum().backward()
            (found * y[:, here]).sum().backward()
            bad = worst({"value": distance(found, expected[:, here]),
                         **slope_errors(mine, whole, comm.rank)})  # fmt: skip
            errors += [(vocabulary, padding, cuts, shape, rows, bad)] if bad else []
    return errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_vectors_of_a_cut_vocabulary_are_those_of_the_whole(ranks):
    assert run(embedded, ranks, 8, timeout=60) == [[]] * ranks


def infinite(comm):
    """What other tokens have, even where it is no number, is nobody else's."""
    torch.manual_seed(0)
    whole = nn.Embedding(4, 2)
    whole.weight.data[0] = math.inf
    found = VocabEmbedding(comm, whole)(torch.tensor([1, 2, 3]))
    return torch.equal(found, whole(torch.tensor([1, 2, 3])))


def test_a_vector_that_is_not_finite_stays_alone():
    assert run(infinite, 2, timeout=10) == [True] * 2


OPTIONS = [
    {"reduction": reduction, "label_smoothing": smoothing, "weight": weighted,
     "ignore_index": ignored}
    for reduction, smoothing, weighted, ignored in itertools.product(
        ["mean", "sum", "none"], [0.0, 0.3], [False, True], [-100, 2])
]  # fmt: skip


def losses(comm, scale):
    """Errors of the loss and of its slope against torch's, for all options and many cuts."""
    draw, errors = random.Random(comm.size), []
    for number, options in enumerate(OPTIONS):
        classes = draw.randint(3, 9)
        cuts = some_cuts(draw, classes, comm.size)
        shape = draw.choice([(), (6,), (2, 3)])
        target = tokens_of(shape, classes, number)
        if options["ignore_index"] < 0 and shape:
            target.view(-1)[1] = options["ignore_index"]
        weight = drawn(classes, seed=number).abs() if options["weight"] else None
        options = {**options, "weight": weight}
        logits = (scale * drawn(*shape, classes, seed=number) + scale).requires_grad_()
        own = logits.detach()[..., cuts[comm.rank] : cuts[comm.rank + 1]].clone().requires_grad_()
        flat = logits.movedim(-1, min(1, len(shape)))
        expected = functional.cross_entropy(flat, target, **options)
        found = vocab_cross_entropy(comm, own, target, cuts, **options)
        y = drawn(*expected.shape, seed=5)
        (expected * y).sum().backward()
        (found * y).sum().backward()
        slope = logits.grad[..., cuts[comm.rank] : cuts[comm.rank + 1]]
        pairs = {"loss": (found, expected), "slope": (own.grad, slope)}
        bad = {name: pair for name, pair in pairs.items() if not alike(*pair)}
        errors += [(options, cuts, shape, bad)] if bad else []
    return errors


def alike(a, b):
    return torch.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [1, 1e4])
def test_the_loss_is_torchs_with_every_option(ranks, scale):
    assert run(losses, ranks, scale, timeout=30) == [[]] * ranks


def special(comm):
    """Masked classes, halves, nothing but ignored targets, and no row at all."""
    logits, target = drawn(3, 4), torch.tensor([1, 3, 0])
    cuts = (0, *[2] * (comm.size - 1), 4)
    here = slice(*cuts[comm.rank : comm.rank + 2])
    masked = logits.masked_fill(torch.tensor([False, False, True, False]), -math.inf)
    same = []
    for x, y in (
        (masked, target), (logits, torch.full((3,), -100)), (logits[:0], target[:0]),
        (logits.bfloat16(), target), (300 * logits.float(), target),
    ):  # fmt: skip
        whole, own = (each.clone().requires_grad_() for each in (x, x[:, here]))
        expected = functional.cross_entropy(whole, y)
        found = vocab_cross_entropy(comm, own, y, cuts)
        expected.backward()
        found.backward()
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if x.dtype == torch.bfloat16 else {}
        for a, b in ((found, expected), (own.grad, whole.grad[:, here])):
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
        same.append(found.dtype)
    return same


def test_masked_classes_halves_and_nothing_at_all():
    dtypes = [torch.float64] * 3 + [torch.bfloat16, torch.float32]
    assert run(special, 3, timeout=10) == [dtypes] * 3


def tied(comm):
    """One matrix at both ends: its slope is the sum of both uses."""
    torch.manual_seed(0)
    whole, tokens = nn.Embedding(7, 3).double(), tokens_of((2, 4), 7, 1)
    functional.cross_entropy((whole(tokens) @ whole.weight.T).flatten(0, 1),
                             tokens.flatten()).backward()  # fmt: skip
    mine = VocabEmbedding(comm, whole)
    head = ColumnLinear(comm, linear_of(whole))
    head.weight = mine.weight
    vocab_cross_entropy(comm, head(mine(tokens)), tokens, head.cuts).backward()
    return worst(slope_errors(mine, whole, comm.rank))


def linear_of(embedding):
    linear = nn.Linear(*embedding.weight.shape[::-1], bias=False)
    linear.weight = embedding.weight
    return linear


@pytest.mark.parametrize("ranks", [2, 4])
def test_one_matrix_at_both_ends(ranks):
    assert run(tied, ranks, timeout=10) == [{}] * ranks


def wrong(comm, kind):
    cuts, logits = (0, 2, 5), torch.ones(3, 2 + comm.rank)
    target, loss = torch.zeros(3, dtype=torch.long), vocab_cross_entropy
    calls = {
        "token": lambda: VocabEmbedding(comm, nn.Embedding(5, 2))(torch.tensor([1, 5])),
        "negative": lambda: VocabEmbedding(comm, nn.Embedding(5, 2))(torch.tensor([-1, 4])),
        "sparse": lambda: VocabEmbedding(comm, nn.Embedding(5, 2, sparse=True)),
        "target": lambda: loss(comm, logits, target + 5, cuts),
        "logits": lambda: loss(comm, torch.ones(3, 5), target, cuts),
        "probabilities": lambda: loss(comm, logits, torch.ones(3), cuts),
        "weight": lambda: loss(comm, logits, target, cuts, weight=torch.ones(2)),
        "reduction": lambda: loss(comm, logits, target, cuts, reduction="max"),
        "smoothing": lambda: loss(comm, logits, target, cuts, label_smoothing=1.5),
        "cuts": lambda: loss(comm, logits, target, (0, 5)),
    }
    calls[kind]()


@pytest.mark.parametrize("kind, sentence", [
    ("token", "IndexError: rank 0: tokens go from 0 to 4: not 5"),
    ("negative", "IndexError: rank 0: tokens go from 0 to 4: not -1"),
    ("sparse", "rank 0: an embedding with sparse is not cut"),
    ("target", "IndexError: rank 0: tokens go from 0 to 4: not 5"),
    ("logits", r"rank 0: logits are \[3, 2\], for the targets \[3\] and .*: not \[3, 5\]"),
    ("probabilities", "rank 0: targets are whole numbers, not torch.float32"),
    ("weight", r"rank 0: a weight is given for each of 5 classes: not \[2\]"),
    ("reduction", "rank 0: reduction is mean, sum or none, not 'max'"),
    ("smoothing", "rank 0: label_smoothing lies from 0 to 1, not 1.5"),
    ("cuts", r"rank 0: the cuts \(0, 5\) make 1 parts, and there are 2 ranks"),
])  # fmt: skip
def test_what_cannot_be_is_said_in_a_sentence(kind, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, kind, timeout=10)
