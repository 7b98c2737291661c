"""How many samples a forward has: told by its inputs, or by the program."""

import pytest
import torch
from torch import nn

from course.parallel.data.data_parallel import DataParallel
from course.parallel.data.samples import count_samples, tensors_in
from course.worlds import RankError, run
from tests.worlds.simulator.clusters import switched


class Pair:
    def __init__(self, *tensors):
        self.tensors, self.itself = tensors, self


def test_tensors_are_found_wherever_they_are():
    x, y, z = torch.ones(1), torch.ones(2), torch.ones(3)
    found = tensors_in(({"a": [x, 7, "text"], "b": Pair(y, z)}, torch.relu, None))
    assert [len(tensor) for tensor in found] == [1, 2, 3]


def ones(*shape):
    return torch.ones(shape)


@pytest.mark.parametrize(
    "args, kwargs, samples",
    [
        ((ones(3, 2),), {}, 3),
        ((ones(3, 2), 7, ones(3), ones()), {}, 3),
        ((), {"ids": ones(4, 9), "mask": ones(4, 9)}, 4),
        (({"x": ones(5, 1), "y": [ones(5)]},), {}, 5),
        ((ones(0, 2),), {}, 0),
    ],
)
def test_samples_are_rows(args, kwargs, samples):
    assert count_samples(nn.Linear(1, 1), args, kwargs) == samples


@pytest.mark.parametrize(
    "args, sentence",
    [
        ((ones(3, 2), ones(2)), "of how many samples is a call with tensors of 2, 3 rows"),
        ((7,), "of how many samples is a call with no tensor"),
    ],
)
def test_inputs_that_do_not_tell(args, sentence):
    with pytest.raises(ValueError, match=sentence + r".* say it by samples="):
        count_samples(nn.Linear(1, 1), args, {})


def test_rows_may_be_times():
    with pytest.raises(ValueError, match="are 4 rows so many samples, or times"):
        count_samples(nn.Sequential(nn.LSTM(5, 3)), (ones(4, 8, 5),), {})
    assert count_samples(nn.LSTM(5, 3, batch_first=True), (ones(4, 8, 5),), {}) == 4


class Sums(nn.Module):
    """Of a dictionary, or of what is given by keyword alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 2).double()

    def forward(self, batch=None, *, x=None):
        return {"out": [self.layer(batch["x"] if x is None else x)]}


ROWS = torch.linspace(-1, 1, 16, dtype=torch.float64).view(8, 2)


def gradient_of(net, **given):
    module = getattr(net, "module", net)
    net(**given)["out"][0].square().mean().backward()
    return module.layer.weight.grad


def uneven(comm, named):
    x = ROWS.split([7, 1])[comm.rank]
    given = {"x": x} if named else {"batch": {"x": x}}
    return gradient_of(DataParallel(Sums(), comm), **given)


@pytest.mark.parametrize("named", [False, True])
def test_dictionaries_and_keywords(named):
    expected = gradient_of(Sums(), x=ROWS)
    for mine in run(uneven, 2, named, on=switched(2)):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-14)


def in_time(comm, said):
    """Input [time, samples, features]."""
    torch.manual_seed(0)
    net = DataParallel(nn.RNN(5, 3).double(), comm)
    x = torch.linspace(-1, 1, 160, dtype=torch.float64).view(4, 8, 5)
    if comm.size > 1:
        x = x.split([7, 1], dim=1)[comm.rank]
    net(x, samples=x.shape[1] if said else None)[0].square().mean().backward()
    return net.module.weight_ih_l0.grad


def test_time_first():
    expected = run(in_time, 1, True, on=switched(1))[0]
    for mine in run(in_time, 2, True, on=switched(2)):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-14)
    with pytest.raises(RankError, match="are 4 rows so many samples, or times"):
        run(in_time, 2, False, on=switched(2))


def as_torch(comm):
    """Every rank once, whatever rows it has."""
    net, x = DataParallel(Sums(), comm), ROWS.split([7, 1])[comm.rank]
    net(x=x, samples=1)["out"][0].square().mean().backward()
    return net.module.layer.weight.grad


def test_one_sample_a_rank_is_the_mean_over_ranks():
    parts = [gradient_of(Sums(), x=x) for x in ROWS.split([7, 1])]
    for mine in run(as_torch, 2, on=switched(2)):
        torch.testing.assert_close(mine, sum(parts) / 2, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("samples", [-1, float("nan"), float("inf")])
def test_samples_that_cannot_be(samples):
    with pytest.raises(RankError, match=f"samples is how many there are, 0 or more, not {samples}"):
        run(lambda comm: DataParallel(Sums(), comm)(x=ROWS, samples=samples), 1, on=switched(1))
