"""Random programs of messages, groups, background calls and collectives, against numpy."""

import random

import numpy
import pytest
import torch

from course.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from course.worlds import mpi, processes, run, slurm
from tests.worlds.simulator.clusters import switched

SIZES = (0, 1, 3, 700, 20_000, 300_000)


def drawn(seed, ranks, steps=12):
    """A program: (verb, group number, size, number) for all ranks alike; groups are lists."""
    draw, groups, program = random.Random(seed), [list(range(ranks))], []
    for number in range(steps):
        verb = draw.choice([*VERBS, "split"])
        if verb == "split":
            order = draw.sample(range(ranks), ranks)
            cut = draw.randint(1, ranks)
            groups += [order[:cut], order[cut:]] if cut < ranks else [order]
            program.append((verb, [order[:cut], order[cut:]], 0, number))
        else:
            program.append((verb, draw.randrange(len(groups)), draw.choice(SIZES), number))
    return program


def values(rank, size, number):
    """Whole numbers, so that sums are exact."""
    return numpy.random.default_rng([rank, size, number]).integers(-50, 50, size).astype("f4")


def swap(comm, x, members, number):
    """With the ranks before and after, begun in an order drawn by rank."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    got, draw = torch.full_like(x, 99), random.Random(f"{number} {comm.rank}")
    begin = [lambda: comm.isend(x, right, number), lambda: comm.irecv(got, left, number)]
    handles = [begin[way]() for way in draw.sample([0, 1], 2)]
    for handle in draw.sample(handles, 2):
        handle.wait()
    return got, lambda every: every[left]


def exchanged(comm, x, members, number):
    shift = number % comm.size
    to, source = (comm.rank + shift) % comm.size, (comm.rank - shift) % comm.size
    if shift == 0:
        return x, lambda every: every[comm.rank]
    got = torch.full_like(x, 99)
    comm.exchange(x, to, got, source, number)
    return got, lambda every: every[source]


def summed(comm, x, members, number):
    all_reduce(comm, x)
    return x, lambda every: sum(every)


def summed_in_background(comm, x, members, number):
    highest, calls = x.clone(), [comm.submit(all_reduce, x)]
    calls.append(comm.submit(all_reduce, highest, "max"))
    comm.barrier()
    for call in calls:
        call.wait()
    return torch.cat([x, highest]), lambda every: numpy.concatenate([sum(every), max_of(every)])


def max_of(every):
    return numpy.max(every, axis=0)


def spread(comm, x, members, number):
    root = number % comm.size
    broadcast(comm, x, root)
    return x, lambda every: every[root]


def gathered(comm, x, members, number):
    outs = [torch.full_like(x, 99) for _ in members]
    all_gather(comm, outs, x)
    return torch.cat(outs), lambda every: numpy.concatenate(every)


def scattered(comm, x, members, number):
    out = torch.full_like(x, 99)
    reduce_scatter(comm, out, [x + part for part in range(comm.size)])
    return out, lambda every: sum(every) + comm.rank * comm.size


def turned(comm, x, members, number):
    outs = [torch.full_like(x, 99) for _ in members]
    all_to_all(comm, outs, [x + part for part in range(comm.size)])
    return torch.cat(outs), lambda every: numpy.concatenate(every) + comm.rank


VERBS = {f.__name__: f for f in (swap, exchanged, summed, summed_in_background, spread, gathered,
                                 scattered, turned)}  # fmt: skip


def follow(comm, seeds):
    """The steps whose values are not those of numpy, of the program of every seed."""
    return [wrong for seed in seeds for wrong in wrongs(comm, seed)]


def wrongs(comm, seed):
    groups, names = [comm], [list(range(comm.size))]
    for step in drawn(seed, comm.size):
        verb, group, size, number = step
        if verb == "split":
            parts = [part for part in group if part]
            mine = next(n for n, part in enumerate(parts) if comm.rank in part)
            made = comm.split(mine, key=parts[mine].index(comm.rank))
            groups += [made if n == mine else None for n in range(len(parts))]
            names += parts
        elif groups[group] is not None:
            x = torch.from_numpy(values(comm.rank, size, number).copy())
            got, expected = VERBS[verb](groups[group], x, names[group], number)
            every = [values(rank, size, number) for rank in names[group]]
            if not numpy.array_equal(got.numpy(), expected(every)):
                yield seed, step


WORLDS = {
    "one node": lambda ranks: processes(),
    "a node each": lambda ranks: processes(nodes=tuple(range(ranks))),
    "two nodes": lambda ranks: processes(nodes=tuple(rank % 2 for rank in range(ranks))),
    "mpi": lambda ranks: mpi(),
    "slurm": lambda ranks: slurm(nodes=2),
    "simulated": switched,
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_random_programs_have_the_values_of_numpy(world, ranks, request):
    if world == "mpi":
        pytest.importorskip("mpi4py")
    if world == "slurm":
        request.getfixturevalue("at_box")
    checked = ranks != 3
    on, seeds = WORLDS[world](ranks), range(100 * ranks, 100 * ranks + 3)
    assert run(follow, ranks, seeds, on=on, checked=checked) == [[]] * ranks
