"""The same functions on an imagined cluster: their values, and seconds that equal the theory's."""

import gc
import threading

import pytest
import torch

from course.cluster.fabric import coates_2013, one_switch
from course.cluster.hardware import FREE, GTX_680, Cable
from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    cost,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from course.collectives.all_reduce import ALGORITHMS
from course.comm import Trace
from course.worlds import RankError, RunTimeout, run, simulated
from tests.collectives.test_basic import all_drills, every_dtype_and_op, every_shape_and_layout
from tests.collectives.test_cost import EQUAL, UNEVEN, every_collective, expected, metered, one_call
from tests.worlds.simulator.clusters import ALPHA_S, BETA_S, slowly, switched

GAMMA_S = 10e-12
GIGABYTE = Cable("a gigabyte", 1e-6, 1e9, "made up")
EXACT = {"rel": 1e-9, "abs": 0}


def zeros(nbytes, device="cpu"):
    return torch.zeros(nbytes, dtype=torch.uint8, device=device)


# Values: whatever passes on processes passes here


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_collectives_give_the_same_values_as_on_processes(ranks):
    cases = [*every_shape_and_layout(), *every_dtype_and_op()][ranks::11]
    assert run(all_drills, ranks, cases, on=switched(ranks)) == [[]] * ranks


def test_and_so_they_do_on_servers_of_several_ranks():
    cases = [*every_shape_and_layout(), *every_dtype_and_op()][::11]
    assert run(all_drills, 5, cases, on=simulated(coates_2013(3, 2))) == [[]] * 5


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("sizes", [EQUAL, UNEVEN], ids=["equal", "uneven"])
def test_collectives_send_what_their_formulas_say(ranks, sizes):
    trace = Trace()
    run(every_collective, ranks, sizes[:ranks], trace=trace, on=switched(ranks))
    for number, (name, formula) in enumerate(expected(sizes[:ranks]), start=1):
        assert metered(one_call(trace, number)) == formula[:3], f"{name} #{number}"


def step_of_a_net(comm, seed):
    """Gradients of a small net, averaged: what a rank of data parallelism does."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
    torch.manual_seed(seed + 1 + comm.rank)
    net(torch.randn(3, 5)).square().mean().backward()
    for weights in net.parameters():
        all_reduce(comm, weights.grad, "mean")
    return [weights.grad.tolist() for weights in net.parameters()]


def test_a_training_step_is_bitwise_that_of_real_processes():
    here, there = run(step_of_a_net, 3, 5), run(step_of_a_net, 3, 5, on=switched(3))
    assert here == there


MARK = 1009  # numbers: a length that no other tensor has


def passes_on(comm):
    x = zeros(MARK)
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.send(x, comm.rank + 1)


def test_no_tensor_outlives_its_run():
    """Nor waits for a collection of garbage, which comes late: many runs would fill the memory."""
    gc.disable()
    try:
        run(passes_on, 3, on=switched(3))
        assert not [x for x in gc.get_objects() if type(x) is torch.Tensor and x.numel() == MARK]
    finally:
        gc.enable()


# Seconds: those of the theory


def timed(comm, call, *args):
    before = comm.clock()
    call(comm, *args)
    return comm.clock() - before


def send_once(comm, nbytes):
    comm.send(zeros(nbytes), 1) if comm.rank == 0 else comm.recv(zeros(nbytes), 0)


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 12_500_000])
def test_a_message_takes_alpha_and_its_bytes_at_both_ends(nbytes):
    seconds = run(timed, 2, send_once, nbytes, on=switched(2))
    assert seconds == pytest.approx([ALPHA_S + nbytes * BETA_S] * 2, **EXACT)


def equal_parts(comm, n):
    return [zeros(n // comm.size) for _ in range(comm.size)]


def combined(op, flops, nbytes, device):
    """Charges what theory counts: gamma a byte where two tensors are added."""
    return GAMMA_S * nbytes / 3 if op == "add_" else 0.0


CALLS = {  # name: (the call, its cost by formula), of n bytes on p ranks
    "broadcast": (lambda c, n: broadcast(c, zeros(n), 1 % c.size),
                  lambda p, n: cost.broadcast(p, n)),
    "all_gather": (lambda c, n: all_gather(c, equal_parts(c, n), zeros(n // c.size)),
                   lambda p, n: cost.all_gather([n // p] * p)),
    "all_to_all": (lambda c, n: all_to_all(c, equal_parts(c, n), equal_parts(c, n)),
                   lambda p, n: cost.all_to_all([[n // p] * p] * p)),
    "reduce_scatter": (lambda c, n: reduce_scatter(c, zeros(n // c.size), equal_parts(c, n)),
                       lambda p, n: cost.reduce_scatter([n // p] * p)),
    "reduce": (lambda c, n: reduce(c, zeros(n)), lambda p, n: cost.reduce(p, n)),
    "scatter": (lambda c, n: scatter(c, zeros(n), [zeros(n)] * c.size if c.rank == 0 else None),
                lambda p, n: cost.scatter([n] * p)),
    "gather": (lambda c, n: gather(c, zeros(n), None if c.rank else equal_parts(c, n * c.size)),
               lambda p, n: cost.gather([n] * p)),
}  # fmt: skip
ALL_REDUCES = {  # by bytes
    "flat": cost.flat_all_reduce,
    "tree": cost.tree_all_reduce,
    "recursive_doubling": cost.recursive_doubling_all_reduce,
    "ring": lambda p, n: cost.ring_all_reduce(p, n, 1),
    "halving_doubling": lambda p, n: cost.halving_doubling_all_reduce(p, n, 1),
    "hierarchical": lambda p, n: cost.hierarchical_all_reduce(range(p), n, 1),
}
EARLY_LEAVES = 5, 9  # ranks: some of the tree's leaves have sent before the others begin
CROWDED = 5, 7, 9  # ranks: more than two of their long messages meet at one rank


def theory_and_cluster(call, formula, ranks, nbytes) -> tuple:
    """The seconds of a call by its formula, and of its last rank on one switch."""
    seconds = run(timed, ranks, call, nbytes, on=switched(ranks, charge=combined))
    return formula(ranks, nbytes).seconds(ALPHA_S, BETA_S, GAMMA_S), max(seconds)


def test_every_all_reduce_has_a_formula_that_is_timed():
    assert set(ALL_REDUCES) == set(ALGORITHMS)


def by(algorithm):
    return lambda comm, n: all_reduce(comm, zeros(n), algorithm=algorithm, segment_bytes=1 << 40)


RANKS = [*range(1, 10), 16]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CALLS)
def test_collectives_take_the_seconds_of_their_formulas(name, ranks):
    for nbytes in (ranks, 5040 * ranks, 252_000 * ranks):
        theory, cluster = theory_and_cluster(*CALLS[name], ranks, nbytes)
        if name == "reduce" and ranks in EARLY_LEAVES:
            assert 0.8 * theory < cluster < theory
        else:
            assert cluster == pytest.approx(theory, **EXACT), nbytes


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", ALL_REDUCES)
def test_every_all_reduce_takes_the_seconds_of_its_formula(algorithm, ranks):
    """From where every message is short to where all the time is that of bytes."""
    for nbytes in (0, 5040, 252_000, 12_600_000):
        theory, cluster = theory_and_cluster(by(algorithm), ALL_REDUCES[algorithm], ranks, nbytes)
        if algorithm == "tree" and ranks in EARLY_LEAVES and nbytes:
            assert 0.8 * theory < cluster < theory
        elif algorithm == "recursive_doubling" and ranks in CROWDED and nbytes * BETA_S > ALPHA_S:
            assert theory < cluster < 1.3 * theory
        else:
            assert cluster == pytest.approx(theory, **EXACT), nbytes


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
@pytest.mark.parametrize("ranks", [3, 7])
def test_uneven_chunks_are_in_the_formula(algorithm, ranks):
    theory, cluster = theory_and_cluster(by(algorithm), ALL_REDUCES[algorithm], ranks, 5041)
    assert cluster == pytest.approx(theory, **EXACT)


def late_receiver(comm):
    """The receiver computes for ten seconds before it asks."""
    x = zeros(100)
    if comm.rank == 1:
        torch.zeros(1000)
        comm.recv(x, 0)
    else:
        comm.send(x, 1)
    return comm.clock()


def ten_seconds(op, flops, nbytes, device):
    return 10.0 if nbytes == 4000 else 0.0


def test_a_send_does_not_wait_for_its_receiver_unless_it_is_checked():
    world = slowly(2, charge=ten_seconds)
    assert run(late_receiver, 2, on=world, checked=False) == [2.0, 10.0]
    assert run(late_receiver, 2, on=world) == [10.0, 10.0]


# Ranks are apart from one another


SHARED = {"list": [1]}


def spoil(comm, numbers, nested):
    numbers.append(comm.rank)
    nested["x"] += comm.rank
    SHARED["list"].append(comm.rank)
    comm.barrier()
    return numbers, nested["x"].tolist(), SHARED["list"]


def test_arguments_and_globals_of_a_cell_are_copied_for_each_rank():
    numbers, nested = [7], {"x": torch.zeros(2)}
    values = run(spoil, 3, numbers, nested, on=switched(3))
    assert values == [([7, r], [r, r], [1, r]) for r in range(3)]
    assert numbers == [7] and not nested["x"].any() and SHARED == {"list": [1]}


# Computing


def multiply(comm, n):
    a, b = torch.empty(n, n, device=comm.device), torch.empty(n, n, device=comm.device)
    before = comm.clock()
    a @ b
    return comm.clock() - before


def test_computing_takes_the_seconds_of_the_device():
    world = simulated(one_switch(2, GTX_680, GIGABYTE), device="meta")
    small, large = 64, 4096
    memory_s = 3 * 4 * small**2 / 192.3e9
    assert run(multiply, 2, small, on=world) == pytest.approx([memory_s] * 2, rel=1e-12)
    assert run(multiply, 2, large, on=world) == pytest.approx(
        [2 * large**3 / 3090e9] * 2, rel=1e-12
    )
    assert world.report.ranks[0].flops == 2 * large**3


def test_a_slow_rank_takes_longer_for_the_same():
    graph = one_switch(3, GTX_680, GIGABYTE)
    usual, slow, _ = run(multiply, 3, 512, on=simulated(graph, device="meta", slow={1: 2.5}))
    assert slow == pytest.approx(2.5 * usual)


def test_jitter_comes_from_the_seed():
    def clocks(seed):
        world = simulated(one_switch(3, GTX_680, GIGABYTE), device="meta", jitter=0.5, seed=seed)
        return run(multiply, 3, 512, on=world)

    assert clocks(1) == clocks(1) != clocks(2)
    even = run(multiply, 1, 512, on=simulated(one_switch(1, GTX_680, GIGABYTE), device="meta"))[0]
    assert len(set(clocks(1))) == 3 and min(clocks(1)) > even


def eleven_billion(comm):
    share = 11_200_000_000 // comm.size
    weights = torch.empty(share, device=comm.device)
    all_reduce(comm, torch.empty(share // 1000, device=comm.device))
    return weights.numel()


def test_eleven_billion_parameters_take_no_memory():
    world = simulated(coates_2013(), device="meta")
    assert sum(run(eleven_billion, 64, on=world, checked=False)) == 11_200_000_000
    assert 0 < world.report.seconds < 1


# What cannot be


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"slow": {0: 0}}, "a slow rank's factor is positive, not 0"),
        ({"dead": {0: -1}}, "a rank dies at a second ≥ 0, not -1"),
        ({"jitter": float("nan")}, "jitter is a number ≥ 0, not nan"),
        ({"slow": {7: 9}}, "there is no rank 7 to be slow in a placement of 2 ranks"),
        ({"dead": {-1: 0}}, "there is no rank -1 to be dead in a placement of 2 ranks"),
        ({"dead": {"1": 0}}, "there is no rank '1' to be dead in a placement of 2 ranks"),
        ({"slow": {1: 2}, "placement": ["gpu 1"]}, "no rank 1 to be slow in a placement of 1"),
        ({"placement": ["gpu 0", "switch"]}, "the cluster has no device 'switch' to place a rank"),
        ({"placement": ["gpu 0", "gpu 0"]}, "two ranks cannot be on one device, as 'gpu 0'"),
    ],
)
def test_worlds_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        simulated(one_switch(2, FREE, GIGABYTE), **options)


def test_runs_that_cannot_be_are_refused():
    graph = one_switch(2, FREE, GIGABYTE)
    with pytest.raises(ValueError, match="of its own: 3 ranks, but the placement has 2 devices"):
        run(use_native, 3, on=simulated(graph))
    with pytest.raises(ValueError, match="there is no rank 1 to be slow in a run of 1"):
        run(use_native, 1, on=simulated(graph, slow={1: 2.0}))


def use_native(comm):
    comm.native.all_reduce(torch.ones(2))


def test_there_is_no_backend():
    with pytest.raises(RankError, match="rank 0: an imagined cluster has no backend of its own"):
        run(use_native, 2, on=switched(2))


# Ranks that do not behave


def loops(comm):
    if comm.rank == 1:
        begun = comm.clock()
        while comm.clock() < begun + 1:  # no time passes in a loop that neither waits nor computes
            pass
    comm.barrier()


def test_an_endless_loop_ends_at_the_limit_and_is_named():
    world = switched(3)
    with pytest.raises(RunTimeout, match="the run was not over after 1 s") as caught:
        run(loops, 3, on=world, limit=1)
    assert caught.value.rank is None and not caught.value.failures
    assert caught.value.running[1].startswith(", in loops, line ")
    assert "rank 1 was still running, in loops, line " in str(caught.value)
    assert world.report.seconds == 0.0
    assert run(comm_rank, 3, on=world) == [0, 1, 2]


def comm_rank(comm):
    comm.barrier()
    return comm.rank


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no words")


def fails_without_words(comm):
    if comm.rank == 1:
        raise Unspeakable
    comm.barrier()


def test_an_exception_that_cannot_be_told_is_the_failure_of_its_rank():
    with pytest.raises(RankError, match="rank 1 failed: Unspeakable") as caught:
        run(fails_without_words, 3, on=switched(3))
    assert "PeerLost: rank 1 was lost" in caught.value.failures[0]


def waits_in_a_thread(comm):
    told = []

    def wait():
        try:
            comm.recv(torch.zeros(1), 1 - comm.rank)
        except RuntimeError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    return told


def test_a_thread_of_a_rank_s_own_cannot_wait_and_is_told_so():
    sentence = "a rank of an imagined cluster waits in the thread of its function only"
    values = run(waits_in_a_thread, 2, on=switched(2))
    assert [len(told) for told in values] == [1, 1] and values[0][0].startswith(sentence)
