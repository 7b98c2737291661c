import pytest
import torch

from course.collectives import all_reduce, reduce, reduce_scatter
from course.collectives.all_reduce import ALGORITHMS
from course.worlds import processes, run
from tests.collectives.drills import Material, part_shape, wrongs
from tests.collectives.guarded import LAYOUTS, column
from tests.collectives.serial import reduced, values
from tests.worlds.simulator.clusters import switched

EVERY = (*ALGORITHMS, "native", "auto")
PRIME = 1_500_007  # of float32: longer than a ring in memory, several segments to a chunk


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


@pytest.mark.parametrize("algorithm", ["ring", "flat", "hierarchical"])
def test_segments_of_any_length(algorithm):
    assert run(in_segments, 3, algorithm, (1, 8, 12, 16, 40, 10**9)) == [[]] * 3


def reduce_much(comm, op):
    found = []
    for turn, algorithm in enumerate(EVERY):
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
    found = []
    for dtype, layout, shapes, op in cases:
        found += wrongs(comm, drill_native, Material(dtype, layout), shapes, op=op)
    return found


def test_the_backend_is_given_what_it_can_reduce():
    """gloo 2.13 corrupts a column view and its neighbours, in silence: it must not see one."""
    cases = [(torch.float32, layout, [shape], "sum") for layout in LAYOUTS
             for shape in ((13,), (4, 6), (), (0,), (1,))]  # fmt: skip
    cases += [(dtype, column, [(13,)], op) for dtype in (torch.float64, torch.bfloat16)
              for op in ("mean", "prod", "min", "max")]  # fmt: skip
    assert run(survey_native, 3, cases) == [[]] * 3


def lopsided(a, b):
    """Growth by a and then by b; rounded differently if they change places."""
    return a * b + a + b


OPS = ("sum", "mean", "prod", "min", torch.hypot, lopsided)


def awkward(rank, elements, dtype):
    """Numbers of very different sizes, whose sum depends on the order of adding."""
    generator = torch.Generator().manual_seed(rank)
    wide = torch.randn(elements, generator=generator, dtype=torch.float64)
    return (wide * 10 ** (4 * torch.rand(elements, generator=generator) - 2)).to(dtype)


def reduce_awkward(comm, elements, dtypes):
    results = {}
    for dtype in dtypes:
        for op in OPS:
            for algorithm in ALGORITHMS:
                x = awkward(comm.rank, elements, dtype)
                all_reduce(comm, x, op, algorithm=algorithm, segment_bytes=40)
                results[dtype, getattr(op, "__name__", op), algorithm] = x
    return results


@pytest.mark.parametrize(
    "world", [processes(), processes(nodes=(0, 0, 0, 1)), switched(4)], ids=["1", "3+1", "imagined"]
)
def test_all_ranks_hold_the_same_bits_though_the_order_of_adding_matters(world):
    dtypes, elements = (torch.float32, torch.bfloat16, torch.float16), 101
    given = [awkward(rank, elements, torch.float32) for rank in range(4)]
    assert not torch.equal(reduced(given, "sum"), reduced(given[::-1], "sum"))
    first, *others = run(reduce_awkward, 4, elements, dtypes, on=world)
    for key, x in first.items():
        for other in others:
            assert torch.equal(x.view(torch.uint8), other[key].view(torch.uint8)), key
    exact = [x.double() for x in given]
    for op in OPS[:-1]:
        slack = 1e-6 * reduced([x.abs() for x in exact], op)
        for algorithm in ALGORITHMS:
            x = first[torch.float32, getattr(op, "__name__", op), algorithm]
            error = x.double() - reduced(exact, op)
            assert (error.abs() <= slack).all(), (op, algorithm)


def means_of_large_halves(comm):
    """60 000 everywhere: the sum of two would already be beyond 65 504."""
    big = torch.full((7,), 60_000, dtype=torch.float16)
    means = [big.clone() for _ in range(2 + len(ALGORITHMS))]
    reduce(comm, means[0], "mean")
    reduce_scatter(comm, means[1], [big] * comm.size, "mean")
    for mean, algorithm in zip(means[2:], ALGORITHMS, strict=True):
        all_reduce(comm, mean, "mean", algorithm=algorithm)
    return [mean.tolist() for mean in means]


def test_a_mean_of_float16_does_not_overflow():
    assert run(means_of_large_halves, 4) == [[[60_000.0] * 7] * (2 + len(ALGORITHMS))] * 4


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
