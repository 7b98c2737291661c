import inspect

import numpy as np
import pytest
import torch
import torch.distributed as dist

from course.collectives import all_reduce, broadcast, reduce, reduce_scatter, scatter
from course.worlds import processes, run
from tests.collectives.drills import BASIC, DRILLS, REDUCING, Material, wrongs
from tests.collectives.guarded import LAYOUTS, column, conjugate, middle, whole
from tests.collectives.serial import FLOATS, MEANINGFUL

EMPTY, ONE, FEW, PRIME, EVEN = [(0,)], [(1,)], [(2,)], [(13,)], [(4, 6)]
NO_AXES, UNEVEN = [()], [(3,), (0,), (2, 2), (), (5,)]
SHAPES = (EMPTY, ONE, FEW, PRIME, EVEN, NO_AXES, UNEVEN)
LARGE = [
    (600_011,),
    (600_013,),
]  # of float64: longer than a ring in memory, and than any socket's buffer
LONG = [(150_001,)]  # of float32: longer than most sockets' buffers


def survey(comm, drill, cases):
    """Sentences about the cases that came out wrong; the root goes round."""
    found = []
    for number, (dtype, layout, shapes, op) in enumerate(cases):
        found += wrongs(comm, drill, Material(dtype, layout, number), shapes, number, op)
    return found


def every_shape_and_layout():
    cases = [(torch.float32, layout, shapes, "sum") for layout in LAYOUTS for shapes in SHAPES]
    return cases + [(torch.complex64, conjugate, shapes, "sum") for shapes in (PRIME, UNEVEN)]


def every_dtype():
    return [(dtype, column, UNEVEN, "sum") for dtype in MEANINGFUL]


def every_dtype_and_op():
    functions = [(dtype, column, PRIME, compounded) for dtype in FLOATS]
    functions += [(torch.int64, column, PRIME, torch.gcd)]
    named = [(dtype, column, PRIME, op) for dtype, ops in MEANINGFUL.items() for op in ops]
    return named + functions


def compounded(a, b):
    """Growth by a and then by b: associative, commutative, and exact for small whole numbers."""
    return a + b + a * b


def all_drills(comm, cases, drills=DRILLS):
    return [sentence for drill in drills for sentence in survey(comm, drill, cases)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_ranks_hold_what_one_process_works_out(ranks):
    assert run(all_drills, ranks, every_shape_and_layout()) == [[]] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_dtype_arrives(ranks):
    assert run(all_drills, ranks, every_dtype(), BASIC) == [[]] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_op_on_every_dtype_that_it_has_a_meaning_for(ranks):
    assert run(all_drills, ranks, every_dtype_and_op(), REDUCING) == [[]] * ranks


def test_five_ranks():
    cases = [(torch.float64, layout, shapes, "mean") for layout in (whole, column)
             for shapes in (ONE, PRIME, UNEVEN)]  # fmt: skip
    world = processes(oversubscribe=True)
    assert run(all_drills, 5, cases, on=world) == [[]] * 5


@pytest.mark.parametrize("nodes", [(0, 0, 0), (0, 0, 1), (0, 1, 2)])
def test_messages_longer_than_any_buffer_through_shared_memory_and_through_sockets(nodes):
    cases = [(torch.float64, whole, LARGE, "sum"), (torch.float32, column, LONG, "max")]
    assert run(all_drills, 3, cases, on=processes(nodes=nodes)) == [[]] * 3


def test_nothing_depends_on_the_ranks_being_checked():
    cases = [(torch.float32, column, shapes, "sum") for shapes in (PRIME, UNEVEN)]
    assert run(all_drills, 4, cases, checked=False) == [[]] * 4


def use_again(comm, turns):
    found = []
    for drill in DRILLS:
        material = Material(torch.float32, column)
        for turn in range(turns):
            material.again(turn)
            found += wrongs(comm, drill, material, UNEVEN, root=turn)
    return found


def test_the_same_tensors_five_times_with_other_values():
    assert run(use_again, 4, 5) == [[]] * 4


def in_random_groups(comm, seed, turns):
    """All drills in groups drawn anew each turn (colour 2: in none), with the world's between."""
    generator, found, sizes = torch.Generator().manual_seed(seed), [], []
    for turn in range(turns):
        colors = torch.randint(0, 3, (comm.size,), generator=generator).tolist()
        keys = torch.randperm(comm.size, generator=generator).tolist()
        mine = colors[comm.rank] if colors[comm.rank] < 2 else None
        group = comm.split(mine, keys[comm.rank])
        for drill in DRILLS:
            if group:
                material = Material(torch.int64, middle, turn=10 * turn + mine)
                found += wrongs(group, drill, material, UNEVEN, root=turn)
            found += wrongs(comm, drill, Material(torch.int64, whole, turn), PRIME, root=turn)
        sizes.append(group.size if group else 0)
    return found, sizes


def test_groups_of_ranks_drawn_at_random():
    results = run(in_random_groups, 4, 3, 5)
    assert [found for found, _ in results] == [[]] * 4
    assert {size for _, sizes in results for size in sizes} >= {0, 1, 2, 3}


def without_torch_distributed(comm, cases):
    """All drills while every function of torch.distributed, and comm.native, raises."""

    def refuse(*_, **__):
        raise AssertionError("this is the backend's")

    asking = ("is_", "get_")  # `is_initialized` and the like move nothing
    for name in dist.distributed_c10d.__all__:
        if inspect.isfunction(getattr(dist, name, None)) and not name.startswith(asking):
            setattr(dist, name, refuse)
    comm._transport.native = refuse
    found = all_drills(comm, cases)
    for theirs in (lambda x: all_reduce(comm, x, algorithm="native"), dist.all_reduce, dist.send):
        with pytest.raises(AssertionError, match="this is the backend's"):
            theirs(torch.ones(3))
    return found, dist.is_initialized()


def test_no_collective_of_the_backend_is_called():
    cases = [(torch.float32, layout, shapes, "mean") for layout in (whole, column)
             for shapes in (PRIME, UNEVEN)]  # fmt: skip
    assert run(without_torch_distributed, 3, cases) == [([], False)] * 3


def leaf(x):
    return x.requires_grad_()


def result(x):
    """Not a leaf: the gradient of what follows must still flow through it."""
    return x.requires_grad_() * 1


def leave_gradients_alone(comm, made):
    found = []
    for drill in DRILLS:
        for shapes, op in ((PRIME, "mean"), (UNEVEN, "min")):
            material = Material(torch.float64, column, made=made)
            found += wrongs(comm, drill, material, shapes, op=op)
            found += [f"{drill.__name__}: {x}" for x, wanted, history in material.handed
                      if (x.requires_grad, x.grad_fn) != (wanted, history)]  # fmt: skip
    return found


@pytest.mark.parametrize("made", [leaf, result])
def test_tensors_that_want_gradients_get_values_and_keep_their_history(made):
    assert run(leave_gradients_alone, 3, made) == [[]] * 3


def share_one_part(comm):
    """What is only read may be expanded."""
    scatter(comm, out := torch.empty(3), [torch.ones(1).expand(3) * r for r in range(comm.size)])
    total = torch.empty(3)
    reduce_scatter(comm, total, [torch.ones(1).expand(3)] * comm.size)
    return out.tolist(), total.tolist()


def test_expanded_tensors_can_be_sent():
    assert run(share_one_part, 3) == [([float(r)] * 3, [3.0] * 3) for r in range(3)]


def from_a_numpy_root(comm):
    x = torch.tensor([float(comm.rank)])
    broadcast(comm, x, np.int64(1))
    reduce(comm, x, root=np.int32(1))
    return x.item()


def test_a_root_may_be_a_whole_number_of_any_type():
    assert run(from_a_numpy_root, 3) == [1.0, 3.0, 1.0]
