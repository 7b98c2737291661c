"""What training in parallel keeps: residuals, the elastic centre, shards."""

import shutil

import pytest
import torch
from torch import nn

from course.cluster.failover import (
    Checkpoints,
    ElasticWorkers,
    Model,
    Order,
    Residuals,
    Shards,
    train_with_checkpoints,
)  # fmt: skip
from course.parallel.data import DataParallel
from course.parallel.data.compression import OneBit, PowerSGD, TopK
from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.elastic.elastic_averaging import ElasticAveraging
from course.parallel.sharded import Sharded
from course.worlds import run

HOOKS = {"one bit": OneBit, "top k": lambda: TopK(0.2), "power": lambda: PowerSGD(rank=1)}
ROWS = torch.Generator().manual_seed(2)
X, Y = torch.randn(12, 4, generator=ROWS).double(), torch.randn(12, 3, generator=ROWS).double()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()


def trained(comm, folder, steps, parts, module, move, other_ranks=False):
    """Steps of any training, saved after every second one."""

    def step(rows):
        loss = ((module(X[rows]) - Y[rows]) ** 2).mean()
        loss.backward()
        move()
        return loss

    with Checkpoints(comm, folder, every=2) as checkpoints:
        return train_with_checkpoints(comm, step, steps, Order(12, 6, 0), parts, checkpoints,
                     other_ranks=other_ranks)  # fmt: skip


def compressed(comm, folder, steps, kind, other_ranks=False):
    hook = HOOKS[kind]()
    parallel = DataParallel(net(), comm, hook=hook)

    def move():
        with torch.no_grad():
            for p in parallel.parameters():
                p -= 0.1 * p.grad
                p.grad = None

    parts = {"model": Model(parallel), "residuals": Residuals(hook, parallel.module)}
    losses = trained(comm, folder, steps, parts, parallel, move, other_ranks)
    return losses, listed(hook.state_dict(parallel.module))


def listed(state):
    return {kind: {name: x.tolist() for name, x in kept.items()} for kind, kept in state.items()}


@pytest.mark.parametrize("kind", HOOKS)
def test_compression_goes_on_bit_for_bit(tmp_path, kind):
    expected = run(compressed, 3, tmp_path / "all", 7, kind, timeout=60)
    run(compressed, 3, tmp_path / "parts", 4, kind, timeout=60)
    assert run(compressed, 3, tmp_path / "parts", 7, kind, timeout=60) == expected


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_other_ranks_owe_together_what_was_owed(size):
    saved = []
    for rank in range(4):
        module, hook = Bare(), OneBit()
        hook.residual[module.w] = torch.tensor([1.0, 10.0]) * 2**rank
        saved.append(Residuals(hook, module).own())
    owed = torch.zeros(2)
    for rank in range(size):
        module, hook = Bare(), OneBit()
        Residuals(hook, module).load(None, saved, rank, size)
        owed += sum(hook.residual.values())
    assert owed.tolist() == [15.0, 150.0]


def test_what_all_have_alike_is_not_added_up(tmp_path):
    run(compressed, 2, tmp_path, 4, "power", timeout=60)
    before = run(compressed, 2, tmp_path, 4, "power", timeout=60)[0][1]["bases"]
    for _, kept in run(compressed, 3, tmp_path, 4, "power", True, timeout=60):
        assert kept["bases"] == before and before


def elastic(comm, folder, steps, settings, other_ranks=False):
    module = net()
    module[0].bias.requires_grad_(False)
    centre = SynchronousCentre(comm, **settings)
    averaging = ElasticAveraging(module, centre, beta=0.5, tau=3, momentum=0.5)

    def move():
        averaging.step(0.05)
        averaging.weights.clear_gradients()

    parts = {"elastic": ElasticWorkers(averaging)}
    losses = trained(comm, folder, steps, parts, module, move, other_ranks)
    worker = averaging.weights.flat.tolist(), averaging.velocity.tolist()
    return (
        losses,
        averaging.finish().tolist(),
        worker,
        averaging.steps,
        module[1].running_mean.tolist(),
    )


@pytest.mark.parametrize("settings", [{}, {"server": 1}, {"resync_every": 2}])
def test_elastic_averaging_goes_on_bit_for_bit(tmp_path, settings):
    expected = run(elastic, 3, tmp_path / "all", 9, settings, timeout=60)
    run(elastic, 3, tmp_path / "parts", 4, settings, timeout=60)
    assert run(elastic, 3, tmp_path / "parts", 9, settings, timeout=60) == expected
    assert expected[0][2] != expected[1][2]  # workers went their own ways


def test_a_worker_that_there_was_not_begins_at_the_centre(tmp_path):
    run(elastic, 2, tmp_path, 4, {}, timeout=60)
    two = run(elastic, 2, tmp_path, 4, {}, timeout=60)
    three = run(elastic, 3, tmp_path, 4, {}, True, timeout=60)
    assert [worker[1:4] for worker in three[:2]] == [worker[1:4] for worker in two]
    centre, (weights, velocity), steps = three[2][1:4]
    assert weights == centre == two[0][1] and set(velocity) == {0.0} and steps == 4


def test_a_served_centre_is_refused():
    class ServedCentre:
        def __init__(self, comm):
            self.comm = comm

    class Averaging:
        pass

    averaging = Averaging()
    averaging.centre = ServedCentre(type("Comm", (), {"rank": 3}))
    with pytest.raises(ValueError, match="rank 3: .* and ServedCentre knows no such time"):
        ElasticWorkers(averaging)


class Counting(nn.Module):
    """The identity; its state_dict leaves out how often it was asked, and by which rank."""

    def __init__(self):
        super().__init__()
        self.register_buffer("asked", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.asked += torch.stack([torch.ones(()), x.detach().sum()])
        return x


def sharded(comm, folder, steps, other_ranks=False):
    layers = nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)
    shards = Sharded(nn.Sequential(*layers, Counting()).double(), comm, stage=3)
    optimizer = shards.optimizer(torch.optim.SGD, lr=0.1, momentum=0.9)

    def move():
        optimizer.step()
        optimizer.zero_grad()

    parts = {"shards": Shards(shards, optimizer)}
    losses = trained(comm, folder, steps, parts, shards, move, other_ranks)
    asked = shards.module[-1].asked.tolist()
    return losses, {name: x.tolist() for name, x in shards.state_dict().items()}, asked


def test_shards_go_on_bit_for_bit_and_on_other_ranks_to_rounding(tmp_path):
    expected = run(sharded, 3, tmp_path / "all", 7, timeout=60)
    run(sharded, 3, tmp_path / "parts", 4, timeout=60)
    shutil.copytree(tmp_path / "parts", tmp_path / "others")
    assert run(sharded, 3, tmp_path / "parts", 7, timeout=60) == expected
    for losses, _, (asked, _) in run(sharded, 2, tmp_path / "others", 7, True, timeout=60):
        assert losses == pytest.approx(expected[0][0], rel=1e-12, abs=1e-12)
        assert asked == 7
