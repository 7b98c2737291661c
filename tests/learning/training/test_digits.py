import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from course.learning.training import digits

SPLIT = digits.digit_split(torch.float64)


def test_every_image_is_in_one_part_of_the_split():
    everything = torch.cat([part.x for part in SPLIT])
    assert [len(part.x) for part in SPLIT] == [len(part.y) for part in SPLIT] == [1024, 386, 387]
    spread = torch.tensor(load_digits().data).unique(dim=0)
    assert len(everything.unique(dim=0)) == len(spread)


def test_the_split_is_the_same_each_time():
    again = digits.digit_split(torch.float64)
    assert all(torch.equal(a, b) for one, other in zip(SPLIT, again) for a, b in zip(one, other))


def test_pixels_are_standardised_by_the_training_images_alone():
    x = SPLIT.training.x
    torch.testing.assert_close(x.mean(dim=0), torch.zeros(64).double(), rtol=0, atol=1e-12)
    assert SPLIT.validation.x.mean(dim=0).abs().max() > 1e-3
    known = torch.tensor(load_digits().data)[
        torch.randperm(1797, generator=torch.Generator().manual_seed(0))[:1024]
    ]
    torch.testing.assert_close(x, (known - known.mean(dim=0)) / known.std())


def test_a_net_is_its_seeds_whatever_was_drawn_before():
    torch.manual_seed(1)
    one, before = digits.digit_net(3), torch.get_rng_state()
    torch.manual_seed(2)
    other, another = digits.digit_net(3), digits.digit_net(4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))
    assert (one[0].weight - another[0].weight).abs().max() > 0
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), before), "making a net drew from the global generator"
    assert sum(p.numel() for p in one.parameters()) == 64 * 32 + 32 + 32 * 10 + 10


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_parts_of_a_batch_are_the_batch(ranks):
    whole = digits.batches(SPLIT.training, 32, 40, seed=5)
    parts = [digits.batches(SPLIT.training, 32, 40, 5, rank, ranks) for rank in range(ranks)]
    assert len(whole) == 40 and sum(len(x) for x, _ in whole[:32]) == 1024
    for step, (x, y) in enumerate(whole):
        assert torch.equal(torch.cat([part[step].x for part in parts]), x)
        assert torch.equal(torch.cat([part[step].y for part in parts]), y)
    first = torch.cat([x for x, _ in whole[:32]])
    assert torch.equal(first.unique(dim=0), SPLIT.training.x.unique(dim=0))


def test_no_steps_are_no_batches_and_seeds_differ():
    assert digits.batches(SPLIT.training, 32, 0, seed=0) == []
    (one,), (other,) = (digits.batches(SPLIT.training, 32, 1, seed) for seed in (0, 1))
    assert not torch.equal(one.x, other.x)


def test_batches_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="^rank 4 of 4 has no part of a batch of 32$"):
        digits.batches(SPLIT.training, 32, 1, 0, 4, 4)
    with pytest.raises(ValueError, match="^batches of 100 leave a rest of 1024 images$"):
        digits.batches(SPLIT.training, 100, 1, 0)


@pytest.mark.parametrize("widths", [(64, 32, 10), (64, 10), (64, 20, 12, 10)])
def test_backward_is_autograds(widths):
    net = digits.digit_net(0, widths).double()
    ((x, y),) = digits.batches(SPLIT.training, 8, 1, seed=0)
    cross_entropy(net(x), y).backward()
    expected = [p.grad.clone() for p in net.parameters()]
    for _ in range(2):  # nothing is added up
        digits.backward(net, x, y)
    for p, gradient in zip(net.parameters(), expected):
        torch.testing.assert_close(p.grad, gradient)


def test_nets_side_by_side_learn_each_as_by_itself():
    nets = [digits.digit_net(seed).double() for seed in (0, 3, 4)]
    deals = [digits.batches(SPLIT.training, 8, 2, seed) for seed in (0, 3, 4)]
    together = digits.stacked_nets(nets)
    for step in range(2):
        x, y = map(torch.stack, zip(*(deal[step] for deal in deals)))
        for net, deal in zip([together, *nets], [(x, y), *(deal[step] for deal in deals)]):
            digits.backward(net, *deal)
            for p in net.parameters():
                p.data -= 0.5 * p.grad
    learned = torch.cat([p.detach().flatten() for p in together.parameters()])
    expected = [torch.cat([p.detach().flatten() for p in net.parameters()]) for net in nets]
    found = digits.weights_of_each(learned, nets[0], 3)
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-12)
    assert (found[0] - found[1]).abs().max() > 0.1


def test_a_net_is_judged_by_loss_and_wrong_answers():
    net, few = digits.digit_net(0).double(), digits.Images(SPLIT.test.x[:4], SPLIT.test.y[:4])
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.copy_(torch.eye(10)[int(few.y[0])])
    verdict = digits.judge(net, few)
    right = int((few.y == few.y[0]).sum())
    assert verdict.error == 1 - right / 4
    total = torch.log(torch.e + torch.tensor(9.0)).item()
    assert verdict.loss == pytest.approx(total - right / 4, abs=1e-6)


def test_three_passes_learn_the_digits():
    net = digits.digit_net(0).double()
    for x, y in digits.batches(SPLIT.training, 32, 96, seed=0):
        digits.backward(net, x, y)
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.3 * p.grad
    assert digits.judge(net, SPLIT.validation).error < 0.07
