"""Nets and tables for the tests of pipelines, and what one process makes of them."""

import random

import torch
from hypothesis import strategies as st
from torch import nn

from course.parallel.pipeline import INPUT, Pipeline, Schedule
from course.parallel.pipeline.step import Step

WIDTH, CLASSES = 5, 3


class Layer(nn.Module):
    """Any number of arguments in, one tensor out."""

    def __init__(self, arguments, width=WIDTH, last=WIDTH):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(width, width) for _ in range(arguments)])
        self.out = nn.Linear(width, last)

    def forward(self, *xs):
        x = sum(linear(x) for linear, x in zip(self.linears, xs, strict=True))
        return self.out(torch.relu_(x))


def net_for(schedule, seed=0) -> nn.ModuleList:
    """A layer each stage, of as many arguments as it takes."""
    torch.manual_seed(seed)
    last = schedule.stages - 1
    return nn.ModuleList([
        Layer(len(sources), last=CLASSES if stage == last else WIDTH)
        for stage, sources in sorted(schedule.takes.items())
    ]).double()  # fmt: skip


def batch(rows, seed=0, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return x, torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64)


def square(out, target):
    return (out - target).square().mean()


def serial(net, schedule, *args, **kwargs):
    """What the last stage gives, all on one process."""
    known = {INPUT: args}
    for stage in range(schedule.stages):
        taken = []
        for source in schedule.takes[stage]:
            value = known[source]
            taken += value if isinstance(value, tuple) else [value]
        more = kwargs if INPUT in schedule.takes[stage] else {}
        known[stage] = net[stage](*taken, **more)
    return known[schedule.stages - 1]


def gradients(net) -> list:
    """{name: gradient} of each stage."""
    return [{name: p.grad for name, p in part.named_parameters()} for part in net]


def own_gradients(pipeline) -> dict:
    """{stage: {name: gradient}} of those on this rank."""
    return {int(stage): {name: p.grad for name, p in part.named_parameters()}
            for stage, part in pipeline.parts.items()}  # fmt: skip


def required_same(results, expected, tolerance=1e-12):
    """Every gradient of every rank is that of one process."""
    seen = set()
    for mine in results:
        for stage, found in mine.items():
            seen.add(stage)
            assert found.keys() == expected[stage].keys()
            for name, a in found.items():
                b = expected[stage][name]
                assert (a is None) == (b is None), (stage, name)
                if a is not None:
                    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    assert seen == set(range(len(expected)))


def chance_schedule(draw: random.Random, ranks=None) -> Schedule:
    """Any table that can run: stages anywhere, skips, backwards whole and in halves, any order."""
    ranks = ranks or draw.randint(1, 4)
    stages, micro_batches = draw.randint(ranks, ranks + 2), draw.randint(1, 5)
    rank_of = [*range(ranks), *(draw.randrange(ranks) for _ in range(stages - ranks))]
    draw.shuffle(rank_of)
    takes = {stage: (stage - 1, *draw.sample(range(-1, stage - 1), draw.randint(0, min(stage, 2))))
             for stage in range(1, stages)}  # fmt: skip
    halves = {(s, m): draw.random() < 0.5 for s in range(stages) for m in range(micro_batches)}
    kinds = {key: "FIW" if split else "FB" for key, split in halves.items()}
    rows = [sorted(step for (s, m), kind in kinds.items() if rank_of[s] == rank
                   for step in [Step(s, k, m) for k in kind]) for rank in range(ranks)]  # fmt: skip
    return Schedule(_in_any_order(draw, rows, takes, stages, kinds), takes)


def _in_any_order(draw, rows, takes, stages, kinds):
    """The rows of steps again, drawn one by one of those that could be next."""
    takes = {0: (INPUT,), **takes}
    left, done, ordered = {step for row in rows for step in row}, set(), [[] for _ in rows]

    def ready(step):
        stage, kind, number = step
        if kind == "F":
            return all(s == INPUT or Step(s, "F", number) in done for s in takes[stage])
        if kind == "W":
            return Step(stage, "I", number) in done
        later = [t for t, sources in takes.items() if stage in sources]
        after = [Step(t, kinds[t, number][1], number) for t in later]
        return done.issuperset([Step(stage, "F", number), *after])

    while left:
        step = draw.choice(sorted(filter(ready, left)))
        rank = next(r for r, row in enumerate(rows) if step in row)
        ordered[rank].append(step)
        done.add(step)
        left.remove(step)
    return ordered


def schedules(ranks=None):
    return st.randoms(use_true_random=False).map(lambda draw: chance_schedule(draw, ranks))


def steps_of(comm, schedule, rows, uses=1, **options):
    """After each use its loss, and after the last one the gradients of all of them."""
    pipeline = Pipeline(net_for(schedule), comm, schedule, square, **options)
    losses = []
    for use in range(uses):
        x, y = batch(rows + use, use)
        loss = pipeline.step(x, target=y)
        losses.append(loss and loss.item())
    return losses, own_gradients(pipeline), pipeline.peak_live


def steps_of_one(schedule, rows, uses=1):
    net, losses = net_for(schedule), []
    for use in range(uses):
        x, y = batch(rows + use, use)
        loss = square(serial(net, schedule, x), y)
        loss.backward()
        losses.append(loss.item())
    return losses, gradients(net)
