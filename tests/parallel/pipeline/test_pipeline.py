"""A pipeline is the serial net: every gradient, by any table that can run."""

import copy
import os
import random
import signal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course.parallel.pipeline import (
    INPUT,
    Pipeline,
    Schedule,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)
from course.worlds import RankError, run
from tests.parallel.pipeline import nets
from tests.parallel.pipeline.nets import batch, net_for, own_gradients, serial, square
from tests.worlds.simulator.clusters import switched


def all_of(comm, cases):
    return [nets.steps_of(comm, *case[:2], **case[2]) for case in cases]


def required_all(results, cases):
    last = [case[0].rank_of[case[0].stages - 1] for case in cases]
    for number, (schedule, rows, options) in enumerate(cases):
        losses, expected = nets.steps_of_one(schedule, rows, options.get("uses", 1))
        of_ranks = [result[number] for result in results]
        assert of_ranks[last[number]][0] == pytest.approx(losses, rel=1e-12)
        nets.required_same([found for _, found, _ in of_ranks], expected)


NAMED = {
    1: [gpipe(1, 3), interleaved(1, 3, 3), zero_bubble(1, 2)],
    2: [gpipe(2, 5), one_forward_one_backward(2, 1), interleaved(2, 4, 2), zero_bubble(2, 5)],
    3: [one_forward_one_backward(3, 7), interleaved(3, 3, 2), interleaved(3, 2, 2),
        zero_bubble(3, 6, 2)],
    4: [gpipe(4, 2), one_forward_one_backward(4, 8), interleaved(4, 8, 2), zero_bubble(4, 8),
        zero_bubble(4, 8, 2)],
}  # fmt: skip


@pytest.mark.parametrize("ranks", NAMED)
def test_named_schedules_give_the_serial_gradient(ranks):
    """11 to 15 rows in micro-batches of unequal size, in five uses; 2 rows leave some empty."""
    cases = [(schedule, 11, {"uses": 5}) for schedule in NAMED[ranks]]
    cases += [(schedule, 2, {}) for schedule in NAMED[ranks]]
    cases += [(schedule, 11, {"recompute": True}) for schedule in NAMED[ranks]]
    required_all(run(all_of, ranks, cases, timeout=60), cases)


@pytest.mark.parametrize("ranks", [2, 4])
def test_so_does_any_table_that_can_run(ranks):
    draw = random.Random(ranks)
    cases = [(nets.chance_schedule(draw, ranks), 7, {"uses": 2}) for _ in range(12)]
    required_all(run(all_of, ranks, cases, timeout=60), cases)


@given(nets.schedules(), st.integers(1, 9), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_table_on_the_imagined_cluster(schedule, rows, recompute):
    cases = [(schedule, rows, {"recompute": recompute})]
    ranks = len(schedule.rows)
    required_all(run(all_of, ranks, cases, on=switched(ranks)), cases)


# Whatever passes between stages


class First(nn.Module):
    """Tensors of several kinds, and what is no tensor; its tokens are cut to their longest."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, nets.WIDTH)

    def forward(self, tokens, lengths, *, scale):
        longest = int(lengths.max()) if len(lengths) else 0
        tokens = tokens[:, :longest]
        return self.embedding(tokens) * scale, {"lengths": lengths, "longest": longest, "no": None}


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(nets.WIDTH, nets.WIDTH)

    def forward(self, x, about):
        assert about["no"] is None
        assert about["longest"] == x.shape[1]
        mask = torch.arange(x.shape[1]) < about["lengths"][:, None]
        return [self.linear(x).tanh(), x * 2], mask, "text"


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.unused = nn.Linear(nets.WIDTH, nets.CLASSES), nn.Linear(2, 2)

    def forward(self, pair, mask, text):
        assert text == "text"
        x = pair[0] * mask[..., None]
        return self.linear(x.sum(1)), mask.sum(1)


def tokens(rows):
    generator = torch.Generator().manual_seed(rows)
    lengths = torch.randint(1, 6, (rows,), generator=generator)
    return torch.randint(7, (rows, 6), generator=generator), lengths


def first_output(out, target):
    return square(out[0], target)


def structures_net():
    torch.manual_seed(0)
    return nn.ModuleList([First(), Middle(), Last()]).double()


def structured(comm, schedules, options):
    found = []
    for schedule in schedules:
        pipeline = Pipeline(structures_net(), comm, schedule, first_output, **options)
        for rows in (7, 8):
            words, lengths = tokens(rows)
            pipeline.step(words, lengths, target=batch(rows)[1], scale=1.5)
        found.append((own_gradients(pipeline), pipeline(words, lengths, scale=1.5)))
    return found


@pytest.mark.parametrize("recompute", [False, True])
def test_structures_of_changing_shapes_pass(recompute):
    """Tuples, dicts, lists, texts, None, integers and masks; a tensor that nobody uses."""
    schedules = [one_forward_one_backward(3, 4), zero_bubble(3, 3)]
    results = run(structured, 3, schedules, {"recompute": recompute}, timeout=30)
    net = structures_net()
    for rows in (7, 8):
        words, lengths = tokens(rows)
        out = serial(net, schedules[0], words, lengths, scale=1.5)
        square(out[0], batch(rows)[1]).backward()
    for number in range(len(schedules)):
        nets.required_same([result[number][0] for result in results], nets.gradients(net))
        scores, counts = results[2][number][1]
        torch.testing.assert_close(scores, out[0].detach(), rtol=1e-12, atol=1e-12)
        assert torch.equal(counts, out[1])
        assert results[0][number][1] is None


SKIPS = {2: (1, 0), 3: (2, 0, INPUT)}


def skipping(comm):
    """Frozen and thawed, cleared in both ways, with two backwards before a step."""
    schedule, ends = one_forward_one_backward(4, 3, SKIPS), []
    pipeline = Pipeline(net_for(schedule), comm, schedule, square)
    optimizer = torch.optim.SGD(pipeline.parameters(), 0.1, momentum=0.9)
    for use in range(6):
        for stage, part in pipeline.parts.items():
            part.requires_grad_(not (stage in "01" and use in (1, 2)))
        x, y = batch(5 + use, use)
        x.requires_grad_()
        pipeline.step(x, target=y)
        ends.append(x.grad)
        if use % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=use % 3 == 0)
    return own_gradients(pipeline), {k: p.detach() for k, p in pipeline.named_parameters()}, ends


def skipping_serially():
    schedule, ends = gpipe(4, 1, SKIPS), []
    net = net_for(schedule)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for use in range(6):
        for stage, part in enumerate(net):
            part.requires_grad_(not (stage in (0, 1) and use in (1, 2)))
        x, y = batch(5 + use, use)
        x.requires_grad_()
        square(serial(net, schedule, x), y).backward()
        ends.append(x.grad)
        if use % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=use % 3 == 0)
    return nets.gradients(net), dict(net.named_parameters()), ends


def test_training_with_skips_and_frozen_layers_ends_with_the_serial_weights():
    results, (expected, weights, ends) = run(skipping, 4, timeout=30), skipping_serially()
    nets.required_same([found for found, _, _ in results], expected)
    for _, mine, _ in results:
        for name, p in mine.items():
            torch.testing.assert_close(p, weights[name[6:]], rtol=1e-12, atol=1e-12)
    assert results[1][2] == results[2][2] == [None] * 6
    for slopes in zip(results[0][2], results[3][2], ends):  # of stage 0, and of the skip to 3
        torch.testing.assert_close(slopes[0] + slopes[1], slopes[2], rtol=1e-12, atol=1e-12)


def noisy_net():
    torch.manual_seed(0)
    return [noisy_stage().double() for _ in range(2)]


def noisy_stage():
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(nets.WIDTH, 3))
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(nets.WIDTH, nets.WIDTH),
                         nn.BatchNorm1d(nets.WIDTH), normed, nn.Dropout(0.5),
                         nn.Linear(3, nets.WIDTH))  # fmt: skip


def noisy(comm, recompute):
    """Everything that remembers or draws: by halves of backward, too."""
    found = []
    for schedule in (one_forward_one_backward(2, 4), zero_bubble(2, 4)):
        pipeline = Pipeline(noisy_net(), comm, schedule, lambda out: out.square().mean(),
                            recompute=recompute)  # fmt: skip
        torch.manual_seed(comm.rank)
        for use in range(2):
            pipeline.step(batch(9, use)[0])
        found += [own_gradients(pipeline), dict(pipeline.named_buffers()), torch.rand(1)]
    return found


def test_recomputing_draws_and_remembers_nothing_twice():
    with_it, without = (run(noisy, 2, recompute, timeout=30) for recompute in (True, False))
    for mine, theirs in zip(with_it, without):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def in_eighths(comm):
    """Half types, exactly; what is long enough for a lane, in an order of the receiver's own."""
    schedule = Schedule.of("0F0 0F1 0F2 0B1 0B0 0B2\n1F2 1F0 1F1 1B1 1B2 1B0")
    found = []
    for dtype, width, rows in ((torch.bfloat16, 4, 6), (torch.float16, 4, 6), (None, 20000, 24)):
        net = [Scale(width) for _ in range(2)]
        if dtype:
            net = [nn.Linear(width, width).to(dtype), nn.Linear(width, 2).to(dtype)]
        for part in net:
            for p in part.parameters():
                nn.init.constant_(p, 1 / 8)
        pipeline = Pipeline(net, comm, schedule, lambda out: out.float().mean())
        pipeline.step(torch.ones(rows, width, dtype=dtype))
        found.append([(p.grad.dtype, p.grad.unique().tolist()) for p in pipeline.parameters()])
    return found


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("checked", [True, False])
def test_half_types_and_long_messages_in_any_order(on, checked):
    first, second = run(in_eighths, 2, on=on(2), checked=checked, timeout=30)
    hidden = 5 / 8  # of four inputs that are one, and a bias
    for dtype, number in ((torch.bfloat16, 0), (torch.float16, 1)):
        assert first[number] == [(dtype, [1 / 8]), (dtype, [1 / 8])]
        assert second[number] == [(dtype, [hidden / 2]), (dtype, [1 / 2])]
    assert first[2] == [(torch.float32, [pytest.approx(1 / 8 / 20000)])]
    assert second[2] == [(torch.float32, [pytest.approx(1 / 8 / 20000)])]


def token_weights(target):
    return (target != -100).sum()


def weighed(comm):
    """A mean over rows that have a class; one micro-batch has none."""
    schedule = zero_bubble(2, 3)
    x, y = batch(6)[0], torch.tensor([0, -100, 2, 1, -100, -100])
    pipeline = Pipeline(net_for(schedule), comm, schedule, nn.functional.cross_entropy,
                        weigh=token_weights)  # fmt: skip
    loss = pipeline.step(x, target=y, sizes=[1, 3, 2])
    return loss and loss.item(), own_gradients(pipeline)


def test_micro_batches_count_by_their_weight():
    results, net = run(weighed, 2, timeout=20), net_for(gpipe(2, 1))
    x, y = batch(6)[0], torch.tensor([0, -100, 2, 1, -100, -100])
    loss = nn.functional.cross_entropy(serial(net, gpipe(2, 1), x), y)
    loss.backward()
    assert results[1][0] == pytest.approx(loss.item(), rel=1e-12)
    nets.required_same([found for _, found in results], nets.gradients(net))


def copied(comm):
    """A state goes out and in; a copy has the weights, and does not run."""
    schedule = one_forward_one_backward(2, 2)
    pipeline = Pipeline(net_for(schedule, seed=comm.rank), comm, schedule, square)
    names = sorted(pipeline.state_dict())
    other = copy.deepcopy(pipeline)
    pipeline.load_state_dict(other.state_dict())
    pipeline.eval()
    out = pipeline(*([batch(5)[0]] if comm.rank == 0 else []), sizes=[4, 1])
    return names[0], out, all(p.grad is None for p in pipeline.parameters()), other.comm


def test_a_state_and_a_copy_and_an_evaluation():
    (first, nothing, clear, comm), (second, out, _, _) = run(copied, 2, timeout=20)
    assert (first, second, nothing, clear, comm) == (
        "parts.0.linears.0.bias", "parts.1.linears.0.bias", None, True, None
    )  # fmt: skip
    parts = [net_for(gpipe(2, 1), seed=rank)[rank] for rank in range(2)]
    torch.testing.assert_close(out, serial(parts, gpipe(2, 1), batch(5)[0]).detach(), rtol=1e-12,
                               atol=1e-12)  # fmt: skip


class Adds(nn.Module):
    """Changes all that comes in, in place."""

    def forward(self, *xs):
        return sum(x.mul_(n + 2.0).relu_() for n, x in enumerate(xs))


def in_place(comm, schedule):
    """The gradient of the batch, the output, and the batch."""
    pipeline = Pipeline([Adds() for _ in range(4)], comm, schedule, lambda out: out.square().mean())
    leaf = batch(6)[0].requires_grad_()
    x = leaf.square()  # its graph is gone through once for every stage that takes it
    before = x.detach().clone()
    pipeline.step(x)
    return leaf.grad, pipeline(x), torch.equal(x, before)


def test_a_stage_has_its_own_to_change_wherever_the_others_are():
    """On one rank a stage that was skipped to found what the one before had made of it."""
    takes = {1: (0, INPUT), 2: (1, 0), 3: (2, 0, INPUT)}
    ((slope, out, kept),) = run(in_place, 1, interleaved(1, 2, 4, takes), on=switched(1))
    apart = run(in_place, 4, gpipe(4, 2, takes), on=switched(4))
    torch.testing.assert_close(sum(g for g, _, _ in apart if g is not None), slope)
    assert torch.equal(apart[3][1], out)
    assert kept and all(each for _, _, each in apart)


def last_first(comm):
    pipeline, x = Pipeline([Adds()], comm, Schedule.of("0F1 0F0 0B0 0B1")), batch(6)[0]
    return torch.equal(pipeline(x), 2 * x.relu())


def test_outputs_stand_in_the_order_of_the_rows():
    assert run(last_first, 1, on=switched(1)) == [True]


def no_rows(comm):
    schedule = one_forward_one_backward(2, 2)
    pipeline = Pipeline(net_for(schedule), comm, schedule, square)
    x, y = batch(0)
    return pipeline.step(x, target=y), own_gradients(pipeline)


def test_of_no_rows_the_loss_is_zero_and_so_are_gradients():
    (nothing, first), (loss, last) = run(no_rows, 2, on=switched(2))
    assert nothing is None
    assert loss.item() == 0
    assert not any(g.any() for found in (first[0], last[1]) for g in found.values())


# What goes wrong


class Bad(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.linear, self.end, self.calls = nn.Linear(nets.WIDTH, nets.WIDTH), end, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            self.end()
        return self.linear(x)


def broken():
    raise ZeroDivisionError("a stage that divides by zero")


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def fails(comm, end, width):
    schedule = one_forward_one_backward(3, 4)
    net = net_for(schedule).float()
    net[1] = Bad(end)
    Pipeline(net, comm, schedule, square).step(batch(8)[0].float(), target=batch(8)[1].float())


@pytest.mark.parametrize(
    "end, said",
    [(broken, "(?s)rank 1 failed: ZeroDivisionError: a stage that.*was in 1F2 of"),
     (killed, "rank 1")],
)  # fmt: skip
def test_who_fails_in_a_stage_ends_all_and_is_named(end, said):
    with pytest.raises(RankError, match=said):
        run(fails, 3, end, 5, timeout=20)


def wrongly(comm, kind):
    schedule = one_forward_one_backward(2, 2)
    net, (x, y) = net_for(schedule), batch(4)

    def pipeline(schedule=schedule, net=net, loss=square, **options):
        return Pipeline(net, comm, schedule, loss, **options)

    def later():
        """The batch before was cut alike."""
        twice = pipeline()
        twice.step(x, target=y)
        twice.step(*[] if comm.rank else [x[:2]], target=y if comm.rank else None)

    wrong = {
        "later rows": later,
        "ranks": lambda: pipeline(gpipe(3, 2)),
        "another": lambda: pipeline(gpipe(2, 2) if comm.rank else schedule),
        "module": lambda: pipeline(net={0: net[0]}),
        "rows": lambda: pipeline().step(x, target=y[:3]),
        "count": lambda: pipeline().step(x, target=y, sizes=[4]),
        "sum": lambda: pipeline().step(x, target=y, sizes=[1, 2]),
        "unknown": lambda: pipeline().step(None if comm.rank else x),
        "thing": lambda: pipeline(net=[Thing(), net[1]]).step(x, target=y),
        "tied": lambda: pipeline(tied=[[(0, "weight"), (1, "out.weight")]]),
        "alone": lambda: pipeline(tied=[[(0, "out.weight")]]),
        "no gradient": lambda: torch.no_grad()(pipeline().step)(x, target=y),
        "copy": lambda: copy.deepcopy(pipeline()).step(x, target=y),
        "scalar": lambda: pipeline(loss=lambda out, y: out - y).step(x, target=y),
        "number": lambda: pipeline(loss=lambda out, y: 1.5).step(x, target=y),
        "no loss": lambda: pipeline(loss=None).step(x, target=y),
        "weights": lambda: pipeline(weigh=lambda y: y.sum() / 0).step(x, target=y.abs()),
        "other rows": lambda: pipeline().step(
            *[] if comm.rank else [x[:2]], target=y if comm.rank else None
        ),
        "other sizes": lambda: pipeline(loss=lambda out: out.mean()).step(
            x, sizes=None if comm.rank else [1, 3]
        ),
        "no module": lambda: pipeline(net=[net[0], torch.relu]),
    }
    wrong[kind]()


class Thing(nn.Module):
    def forward(self, x):
        return {1, 2}


@pytest.mark.parametrize("kind, sentence", [
    ("ranks", "rank [01]: a schedule of 3 ranks cannot run on 2"),
    ("another", "all ranks run the same schedule and tie .*: rank 1 has others than rank 0"),
    ("module", "rank 1 has stage 1, and needs a module for it: none was given"),
    ("no module", "rank 1 has stage 1, and needs a module for it: <built-in .* is none was given"),
    ("weights", r"what micro-batches weigh are numbers of 0 or more, not \[inf, inf\]"),
    ("other rows", "and of micro-batch 0 rank 0 has 1 rows, and this one 2"),
    ("later rows", "and of micro-batch 0 rank 0 has 1 rows, and this one 2"),
    ("other sizes", "rank 1: all ranks cut the same batch alike, and of micro-batch 0 rank 0 has 1 "
                    "rows, and this one 2"),
    ("no loss", "rank 1 has the last stage, and a step goes back from a loss"),
    ("number", "a loss is a tensor of one number, not 1.5"),
    ("rows", "tensors of a batch have the same number of rows, not 3, 4"),
    ("count", r"the schedule has 2 micro-batches, and sizes are \[4\]"),
    ("sum", r"a batch of 4 rows is not 1 \+ 2"),
    ("unknown", "rank 1: of how many rows is the batch"),
    ("thing", "stage 0 gives set {1, 2}: stages give tensors, numbers"),
    ("tied", "stage 0 has no parameter 'weight' to be tied"),
    ("alone", "tied weights are two or more"),
    ("no gradient", r"a step goes backward: under no_grad\(\), call the pipeline itself"),
    ("copy", "this pipeline is a copy, or was loaded, or a step .* and joined to no ranks"),
    ("scalar", r"rank 1 failed: .* a loss is a tensor of one number, not float64 \[2, 3\]"),
])  # fmt: skip
def test_bad_input_is_one_sentence(kind, sentence):
    with pytest.raises((RankError, ValueError), match=sentence):
        run(wrongly, 2, kind, on=switched(2))
