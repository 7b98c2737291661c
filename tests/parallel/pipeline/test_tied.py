"""Tied weights have the gradient of all their copies, and stay equal."""

import pytest
import torch
from torch import nn

from course.comm import CommError
from course.parallel.pipeline import Pipeline, interleaved, one_forward_one_backward, zero_bubble
from course.worlds import RankError, run
from tests.worlds.simulator.clusters import switched

WORDS, WIDTH = 11, 4
NAMES = [[(0, "weight"), (3, "weight")]]


def net(seed):
    """The last layer is the first one's transpose."""
    torch.manual_seed(seed)
    middle = [nn.Linear(WIDTH, WIDTH) for _ in range(2)]
    return nn.ModuleList(
        [nn.Embedding(WORDS, WIDTH), *middle, nn.Linear(WIDTH, WORDS, bias=False)]
    ).double()  # fmt: skip


def words(use):
    generator = torch.Generator().manual_seed(use)
    return torch.randint(WORDS, (7 + use, 2), generator=generator).unbind(1)


def tied(comm, schedule):
    """Weights after five updates, every second one of two backwards."""
    pipeline = Pipeline(net(seed=1 + comm.rank), comm, schedule, nn.functional.cross_entropy,
                        tied=NAMES)  # fmt: skip
    begun = {name: p.detach().clone() for name, p in pipeline.named_parameters()}
    optimizer = torch.optim.SGD(pipeline.parameters(), 0.5, momentum=0.9)
    for use in range(5):
        optimizer.zero_grad(set_to_none=use % 2 == 0)
        for _ in range(1 + use % 2):
            x, y = words(use)
            pipeline.step(x, target=y)
        optimizer.step()
    return begun, {name: p.detach() for name, p in pipeline.named_parameters()}


def serially(begun):
    model = net(0)
    model[3].weight = model[0].weight
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(begun[f"parts.{name}"])
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    for use in range(5):
        optimizer.zero_grad()
        for _ in range(1 + use % 2):
            x, y = words(use)
            nn.functional.cross_entropy(nn.Sequential(*model)(x), y).backward()
        optimizer.step()
    return {f"parts.{name}": p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("schedule", [
    one_forward_one_backward(4, 3), zero_bubble(4, 3), interleaved(2, 2, 2), interleaved(1, 2, 4),
], ids=repr)  # fmt: skip
def test_copies_begin_alike_and_are_trained_as_one_weight(schedule):
    """On two ranks, on one, beside other stages of that rank; gradients that accumulate."""
    begun, ended = ({}, {})
    results = run(tied, len(schedule.rows), schedule, timeout=30)
    for before, after in results:
        begun.update(before)
        ended.update(after)
    assert torch.equal(begun["parts.0.weight"], begun["parts.3.weight"])
    assert torch.equal(ended["parts.0.weight"], ended["parts.3.weight"])
    for name, expected in serially(begun).items():
        torch.testing.assert_close(ended[name], expected, rtol=1e-12, atol=1e-12)


def begun(comm):
    schedule = one_forward_one_backward(4, 1)
    pipeline = Pipeline(net(seed=comm.rank), comm, schedule, tied=[[(3, "weight"), (0, "weight")]])
    return [p.detach() for p in pipeline.parameters()][0]


def test_copies_begin_as_the_first_that_is_named():
    weights, first = run(begun, 4, on=switched(4)), net(seed=3)[3].weight.detach()
    assert torch.equal(weights[0], first) and torch.equal(weights[3], first)


PAIR = [[(0, "weight"), (1, "weight")]]


class Product(nn.Module):
    def __init__(self, width=WIDTH, out=WIDTH):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width, out), 0.5, dtype=torch.float64))
        self.spare = nn.Parameter(torch.ones(width, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight


def failing(out, target):
    if target.sum() < 0:
        raise ArithmeticError("a loss that fails")
    return (out - target).square().mean()


def own_slopes(pipeline):
    return [p.weight.grad.clone() for p in pipeline.parts.values()]


def broken_off(comm, schedule):
    """Gradients before and after a step that fails in its second micro-batch, what the next one
    says, and the gradients that another pipeline of the same parts then adds."""

    def joined(parts):
        return Pipeline(parts, comm, schedule, failing, tied=PAIR)

    x, y = torch.ones(4, WIDTH).double(), torch.ones(4, WIDTH).double()
    pipeline = joined([Product(), Product()])
    pipeline.step(x, target=y)
    before, wrong = own_slopes(pipeline), y.clone()
    wrong[2:] = -1
    with pytest.raises((ArithmeticError, CommError)):
        pipeline.step(x, target=wrong)
    after = own_slopes(pipeline)
    with pytest.raises(RuntimeError) as caught:
        pipeline.step(x, target=y)
    added = None
    if comm.size == 1:
        another = joined([*pipeline.parts.values()])
        another.step(x, target=y)
        added = own_slopes(another)
    return before, after, str(caught.value), added


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_that_raises_leaves_the_gradients_that_were_there(ranks):
    schedule = interleaved(1, 2, 2) if ranks == 1 else one_forward_one_backward(2, 2)
    for before, after, said, added in run(broken_off, ranks, schedule, on=switched(ranks),
                                          checked=False):  # fmt: skip
        assert all(map(torch.equal, before, after))
        assert "a step of it broke off, and joined to no ranks: make another one of" in said
        if added:
            torch.testing.assert_close(added, [2 * slope for slope in before])


def frozen_and_unused(comm):
    """Gradients where both copies are frozen with a gradient from before; where nobody uses them;
    what is said where one is frozen alone."""
    schedule, x = one_forward_one_backward(2, 2), torch.ones(4, WIDTH).double()
    tied = [*PAIR, [(0, "spare"), (1, "spare")]]
    pipeline = Pipeline([Product(), Product()], comm, schedule, lambda out: out.mean(), tied=tied)
    (part,) = pipeline.parts.values()
    pipeline.step(x)
    before = part.weight.grad.clone()
    part.weight.requires_grad_(False)
    pipeline.step(x)
    kept, unused = torch.equal(part.weight.grad, before), part.spare.grad
    part.weight.requires_grad_(comm.rank == 1)
    with pytest.raises(ValueError) as caught:
        pipeline.step(x)
    return kept, unused, torch.equal(part.weight.grad, before), str(caught.value)


def test_frozen_and_unused_weights_are_as_on_one_process():
    for rank, (kept, unused, still, said) in enumerate(run(frozen_and_unused, 2, on=switched(2))):
        assert kept and still
        assert unused is None  # an optimizer with weight decay would shrink it
        assert said == (f"rank {rank}: copies of a tied weight are all trained or all frozen, and "
                        "1 of 2 are trained")  # fmt: skip


def wrongly_tied(comm, groups, shared=False):
    net = [Product(), Product(), Product(3, 3)]
    if shared:
        net[1].weight = net[0].weight
    schedule = interleaved(1, 1, 3) if comm.size == 1 else one_forward_one_backward(3, 1)
    Pipeline(net, comm, schedule, tied=groups[comm.rank % len(groups)])


@pytest.mark.parametrize("ranks, groups, said", [
    (3, [[[(0, "weight"), (3, "weight")]]],
     r"groups of \(a stage of 3, the name of its parameter\): \(3, 'weight'\) in"),
    (3, [[(0, "weight"), (1, "weight")]], "name of its parameter.: 0 in .0, 'weight'. is none"),
    (3, [PAIR, [], []], "tie the same weights: rank 1 has others than rank 0"),
    (3, [[[(0, "weight"), (2, "weight")]]],
     r"one shape and dtype, and those of .* are float64 \[3, 3\] and float64 \[4, 4\]"),
    (1, [[[(0, "weight"), (2, "weight")]]], r"are float64 \[3, 3\] and float64 \[4, 4\]"),
    (3, [[*PAIR, [(1, "weight"), (2, "weight")]]],
     r"rank 1: a weight is in one tied group, and \(1, 'weight'\) is in two"),
])  # fmt: skip
def test_what_cannot_be_tied_is_a_sentence(ranks, groups, said):
    with pytest.raises(RankError, match=said):
        run(wrongly_tied, ranks, groups, on=switched(ranks))


def test_a_weight_that_ranks_share_untold_is_refused():
    """Each would train a copy by its own part of the gradient."""
    said = r"stages on ranks 0, 1 share a weight, .*: say tied=..\(0, 'weight'\), \(1, 'weight'\).."
    with pytest.raises(RankError, match=said):
        run(wrongly_tied, 3, [[]], True, on=switched(3))
    run(wrongly_tied, 3, [PAIR], True, on=switched(3))
    run(wrongly_tied, 1, [[]], True, on=switched(1))
