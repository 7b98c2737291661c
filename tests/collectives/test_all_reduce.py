import pytest
import torch

from course.collectives import all_reduce, reduce, reduce_scatter
from course.collectives.all_reduce import ring_steps
from course.comm import RankError, Trace, processes, run
from tests.collectives.drills import Material, part_shape, wrongs
from tests.collectives.guarded import LAYOUTS, column, whole
from tests.collectives.serial import reduced, values

ALGORITHMS = ("ring", "flat", "native")
PRIME = 1_500_007  # of float32: longer than a lane, several segments to a chunk


def test_the_steps_of_four_ranks():
    """A row a step, a column a rank: the chunk it sends, with a + where it will be added."""
    by_rank = [ring_steps(4, rank) for rank in range(4)]
    assert drawn(by_rank) == """
        0+ 1+ 2+ 3+
        3+ 0+ 1+ 2+
        2+ 3+ 0+ 1+
        1  2  3  0
        0  1  2  3
        3  0  1  2"""
    for rank, steps in enumerate(by_rank):
        assert [step.receive for step in steps] == [step.send for step in by_rank[rank - 1]]


def drawn(by_rank):
    rows = [" ".join(f"{step.send}{'+' if step.add else ' '}" for step in row).rstrip()
            for row in zip(*by_rank, strict=True)]  # fmt: skip
    margin = "\n" + 8 * " "
    return margin + margin.join(rows)


def test_one_rank_has_no_steps():
    assert ring_steps(1, 0) == []


def reduce_ones(comm, elements):
    all_reduce(comm, torch.ones(elements))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_plan_is_what_runs(ranks):
    trace = Trace()
    run(reduce_ones, ranks, 10, trace=trace)
    planned = {(number, rank, (rank + 1) % ranks, step.send)
               for rank in range(ranks)
               for number, step in enumerate(ring_steps(ranks, rank), start=1)}  # fmt: skip
    assert {(m.step, m.src, m.dst, m.tag) for m in trace.messages} == planned


def in_segments(comm, algorithm, lengths):
    """Wrong sums of tensors that are cut into segments of these lengths in bytes."""
    found = []
    for turn, length in enumerate(lengths):
        for elements in (0, 1, 3, 17, 64):
            x = values((elements,), torch.float64, comm.rank, turn=turn)
            given = [values((elements,), torch.float64, r, turn=turn) for r in range(comm.size)]
            all_reduce(comm, x, algorithm=algorithm, segment_bytes=length)
            if not torch.equal(x, reduced(given, "sum")):
                found.append((length, elements, x))
    return found


@pytest.mark.parametrize("algorithm", ["ring", "flat"])
def test_segments_of_any_length(algorithm):
    assert run(in_segments, 3, algorithm, (1, 8, 12, 16, 40, 10**9)) == [[]] * 3


def reduce_much(comm, op):
    found = []
    for turn, algorithm in enumerate(ALGORITHMS):
        x = values((PRIME,), torch.float32, comm.rank, turn=turn)
        given = [values((PRIME,), torch.float32, r, turn=turn) for r in range(comm.size)]
        all_reduce(comm, x, op, algorithm=algorithm, segment_bytes=700_000)
        if not torch.equal(x, reduced(given, op)):
            found.append(algorithm)
    return found


@pytest.mark.parametrize("nodes", [(0, 0), (0, 1)])
def test_many_segments_longer_than_any_buffer(nodes):
    assert run(reduce_much, 2, "mean", on=processes(nodes=nodes)) == [[]] * 2


def drill_native(comm, material, shapes, root, op):
    x = material.put(comm.rank, shapes[0])
    all_reduce(comm, x, op, algorithm="native")
    given = [material.values(r, part_shape(shapes, 0)) for r in range(comm.size)]
    return [(x, reduced(given, op))]


def survey_native(comm, cases):
    return [sentence for dtype, layout, shapes, op in cases
            for sentence in wrongs(comm, drill_native, Material(dtype, layout), shapes, op=op)]  # fmt: skip


def test_the_backend_is_given_what_it_can_reduce():
    """gloo 2.13 corrupts a column view and its neighbours, in silence: it must not see one."""
    cases = [(torch.float32, layout, [shape], "sum") for layout in LAYOUTS
             for shape in ((13,), (4, 6), (), (0,), (1,))]  # fmt: skip
    cases += [(dtype, column, [(13,)], op) for dtype in (torch.float64, torch.bfloat16)
              for op in ("mean", "prod", "min", "max")]  # fmt: skip
    assert run(survey_native, 3, cases) == [[]] * 3


OPS = ("sum", "mean", "prod", torch.hypot)


def awkward(rank, elements, dtype):
    """Numbers of very different sizes, whose sum depends on the order of adding."""
    generator = torch.Generator().manual_seed(rank)
    wide = torch.randn(elements, generator=generator, dtype=torch.float64)
    return (wide * 10 ** (4 * torch.rand(elements, generator=generator) - 2)).to(dtype)


def reduce_awkward(comm, elements, dtypes):
    results = {}
    for dtype in dtypes:
        for op in OPS:
            for algorithm in ("ring", "flat"):
                x = awkward(comm.rank, elements, dtype)
                all_reduce(comm, x, op, algorithm=algorithm, segment_bytes=40)
                results[dtype, op, algorithm] = x
    return results


def test_all_ranks_hold_the_same_bits_though_the_order_of_adding_matters():
    dtypes, elements = (torch.float32, torch.bfloat16, torch.float16), 101
    given = [awkward(rank, elements, torch.float32) for rank in range(4)]
    assert not torch.equal(reduced(given, "sum"), reduced(given[::-1], "sum"))
    first, *others = run(reduce_awkward, 4, elements, dtypes)
    for key, x in first.items():
        for other in others:
            assert torch.equal(x.view(torch.uint8), other[key].view(torch.uint8)), key
        op, exact = key[1], [awkward(rank, elements, x.dtype).double() for rank in range(4)]
        error = 16 * torch.finfo(x.dtype).eps * reduced([part.abs() for part in exact], op)
        assert ((x.double() - reduced(exact, op)).abs() <= error + 1e-6).all(), key


def means_of_large_halves(comm):
    """60 000 everywhere: the sum of two would already be beyond 65 504."""
    big = torch.full((7,), 60_000, dtype=torch.float16)
    means = [big.clone() for _ in range(4)]
    all_reduce(comm, means[0], "mean")
    all_reduce(comm, means[1], "mean", algorithm="flat")
    reduce(comm, means[2], "mean")
    reduce_scatter(comm, means[3], [big] * comm.size, "mean")
    return [mean.tolist() for mean in means]


def test_a_mean_of_float16_does_not_overflow():
    assert run(means_of_large_halves, 4) == [[[60_000.0] * 7] * 4] * 4


def average_again(comm, turns):
    """The mean of a mean is that mean: dividing twice, or by another number, would show."""
    x = values((5,), torch.float64, comm.rank)
    all_reduce(comm, x, "mean")
    once = x.clone()
    for _ in range(turns):
        all_reduce(comm, x, "mean")
    return torch.equal(x, once)


def test_a_mean_of_equal_tensors_is_that_tensor():
    assert run(average_again, 4, 3) == [True] * 4


REFUSALS = {
    r"rank \d: algorithm must be one of ring, flat, native, not 'tree'": {"algorithm": "tree"},
    r"op must be sum, mean, prod, min, max or a function, not 'average'": {"op": "average"},
    r"no mean of int64: it would have to be rounded": {"op": "mean"},
    r"the backend reduces by sum, mean, prod, min, max, not by": {
        "op": torch.gcd, "algorithm": "native"},
}  # fmt: skip


def reduce_integers(comm, options):
    all_reduce(comm, torch.ones(3, dtype=torch.int64), **options)


@pytest.mark.parametrize(("sentence", "options"), REFUSALS.items())
def test_unknown_ways_are_refused(sentence, options):
    with pytest.raises(RankError, match=sentence):
        run(reduce_integers, 2, options)


def reduce_this(comm, make):
    all_reduce(comm, make())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: torch.ones(3).expand(2, 3),
         r"rank \d: cannot receive into an expanded tensor \(float32 \[2, 3\] with strides \[0, 1\]\)"),
        (lambda: [1.0, 2.0], r"rank \d: what is reduced must be a tensor, not list \[1.0, 2.0\]"),
        (lambda: torch.eye(3).to_sparse(), r"rank \d: what is reduced must be a dense tensor"),
        (lambda: torch.ones(3, dtype=torch.bool), r"no sum of bool: max says whether any is true"),
    ],
)  # fmt: skip
def test_what_cannot_be_reduced_is_refused(make, sentence):
    with pytest.raises(RankError, match=sentence):
        run(reduce_this, 2, make)


def train_on(comm):
    """The gradient of what follows flows through the reduced tensor, as if it had come so."""
    weights = values((4,), torch.float64, comm.rank).requires_grad_()
    x = weights * 3
    all_reduce(comm, x)
    (x * torch.arange(4.0)).sum().backward()
    all_reduce(comm, weights.grad)
    return weights.grad.tolist(), x.is_leaf


def test_backward_runs_through_a_reduced_tensor():
    assert run(train_on, 3) == [([0.0, 9.0, 18.0, 27.0], False)] * 3


def test_the_values_drawn_for_large_tensors_do_not_repeat_at_a_buffer_s_distance():
    """What the tests with large messages rest on: a swapped block would be noticed."""
    x = values((PRIME,), torch.float32, 0)
    for distance in (1 << 14, 1 << 16, 1 << 18, 1 << 20):
        assert not torch.equal(x[distance:], x[:-distance])


@pytest.mark.parametrize("layout", LAYOUTS[1:3])
def test_the_guard_notices_a_neighbour_that_was_written(layout):
    material = Material(torch.float32, layout)
    view = material.room((3,))
    assert material.intact
    view.fill_(1)
    assert material.intact
    torch.as_strided(view, (1,), (1,), view.storage_offset() - 1).fill_(1)
    assert not material.intact
    assert whole((2,))[0] == (2,)
