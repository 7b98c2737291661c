"""A committee over ranks is the committee of one process, and finds the rows that one would."""

import pytest
import torch
from torch import nn

from course.learning.acquisition.picks import highest
from course.learning.training.digits import backward, digit_net
from course.parallel.farm.committee import best_of_all, train_committee
from course.worlds import RankError, run


def taught(net, number):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(30, 64, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (30,), generator=generator)
    for _ in range(3):
        backward(net, x, y)
        with torch.no_grad():
            for p in net.parameters():
                p.sub_(p.grad, alpha=0.1)


def member(number):
    return digit_net(number).double()


def committee(comm, members):
    nets = train_committee(comm, member, taught, members)
    return [net.state_dict() for net in nets], comm.meter.sent_bytes


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("members", [1, 3, 5])
def test_every_rank_has_the_members_of_one_process(ranks, members):
    alone = [member(number) for number in range(members)]
    for number, net in enumerate(alone):
        taught(net, number)
    of_one = 8 * sum(p.numel() for p in alone[0].parameters())
    everyones = run(committee, ranks, members)
    for nets, _ in everyones:
        for net, state in zip(alone, nets, strict=True):
            torch.testing.assert_close(state, dict(net.state_dict()), rtol=1e-10, atol=1e-12)
    assert sum(sent for _, sent in everyones) == (ranks - 1) * members * of_one


def with_buffers(comm):
    train_committee(comm, lambda number: nn.BatchNorm1d(3), lambda net, number: None, 2)


def test_buffers_would_not_travel():
    with pytest.raises(RankError, match="have no buffers, and these have .*running_mean"):
        run(with_buffers, 2)


def best(comm, scores, k, cuts):
    rows = torch.arange(len(scores)).split(cuts)[comm.rank].flip(0)  # their order does not matter
    return best_of_all(comm, scores[rows], rows, k), comm.meter.sent_bytes


@pytest.mark.parametrize("cuts", [[11], [5, 6], [11, 0, 0], [1, 2, 3, 5]])
@pytest.mark.parametrize("k", [1, 4, 11])
def test_the_best_wherever_they_are(cuts, k):
    scores = torch.tensor([3, 9, 9, 1, 4, 9, 2, 3, 3, 0, -2], dtype=torch.float32)
    for rows, sent in run(best, len(cuts), scores, k, cuts):
        assert rows.tolist() == highest(scores, k).tolist()
        assert sent == 16 * k * (len(cuts) - 1)


def test_more_rows_than_there_are():
    with pytest.raises(RankError, match="4 rows cannot be chosen from the 3 of all ranks"):
        run(best, 2, torch.zeros(3), 4, [1, 2])


def test_scores_that_are_none():
    with pytest.raises(RankError, match=r"rank 1: scores are one number a row, none nan"):
        run(best, 2, torch.tensor([0.0, torch.nan]), 1, [1, 1])


def trained_here(comm, members):
    numbers = []
    train_committee(comm, member, lambda net, number: numbers.append(number), members)
    return numbers


def test_each_member_is_trained_by_one_rank():
    assert run(trained_here, 3, 5) == [[0, 3], [1, 4], [2]]
