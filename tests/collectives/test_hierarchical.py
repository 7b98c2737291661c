import pytest
import torch

from course.cluster.fabric import coates_2013
from course.collectives import all_reduce, cost
from course.collectives.all_reduce import ALGORITHMS
from course.collectives.hierarchical import owner, ranks_by_node
from course.comm import CommMismatch
from course.worlds import processes, run, simulated
from tests.collectives.serial import reduced, values
from tests.worlds.simulator.clusters import ALPHA_S, BETA_S, switched
from tests.worlds.simulator.test_world import combined

LOPSIDED = (0, 0, 1, 1, 1, 1, 0)
GAMMA_S = 10e-12


def test_chunks_have_one_owner_on_each_node():
    """As many chunks as the smallest node has ranks: three, of which none is rank 2's."""
    everywhere = ranks_by_node(LOPSIDED)
    assert everywhere == [[0, 1, 6], [2, 3, 4, 5]]
    assert [[owner(ring, chunk) for ring in everywhere] for chunk in range(3)] == [
        [6, 5], [0, 2], [1, 3],
    ]  # fmt: skip
    assert ranks_by_node("abab") == [[0, 2], [1, 3]]


def wrong_sums(comm, lengths, through_memory):
    """What differs from the serial result, over five turns with the same tensors."""
    if not through_memory:
        comm._transport.windows = None, None
    found = []
    for elements in lengths:
        x = torch.empty(elements)
        for turn in range(5 if elements < 1000 else 2):
            given = [values((elements,), torch.float32, r, turn=turn) for r in range(comm.size)]
            x.copy_(given[comm.rank])
            all_reduce(comm, x, algorithm="hierarchical", segment_bytes=700_000)
            if not torch.equal(x, reduced(given, "sum")):
                found.append((elements, turn))
    return found


@pytest.mark.parametrize("through_memory", [True, False])
@pytest.mark.parametrize("nodes", [(0,) * 5, (0, 0, 0, 1), LOPSIDED], ids=["5", "3+1", "3+4"])
def test_any_nodes_any_length(nodes, through_memory):
    """1 500 007: several pieces of each chunk, the last ones of different lengths."""
    lengths, world = (0, 1, 2, 3, 5, 101, 1_500_007), processes(nodes=nodes, oversubscribe=True)
    assert run(wrong_sums, len(nodes), lengths, through_memory, on=world) == [[]] * len(nodes)


def in_two_groups(comm):
    """Ranks of the same nodes in two groups at once, and all of them between."""
    group, found = comm.split(comm.rank % 2), []
    for elements in (3, 700_001):
        for some in (group, comm, group):
            x = torch.full((elements,), float(comm.rank))
            all_reduce(some, x, algorithm="hierarchical")
            found += [x.unique().tolist() == [float(sum(some.members))]]
    return found


def test_groups_use_the_memory_of_a_node_bundle():
    world = processes(nodes=(0, 0, 0, 0, 1), oversubscribe=True)
    assert run(in_two_groups, 5, on=world) == [[True] * 6] * 5


def reduce_others(comm, what, algorithm):
    n, long = comm.rank, 10**6
    x = {"lengths": lambda: torch.ones(3 + n), "long": lambda: torch.ones(long + n % 2),
         "nothing": lambda: torch.ones(n % 2), "dtypes": lambda: torch.ones(4).to(KINDS[n]),
         "sizes": lambda: torch.ones(4).to(WIDTHS[n])}[what]()  # fmt: skip
    with pytest.raises(CommMismatch) as caught:
        all_reduce(comm, x, algorithm=algorithm)
    all_reduce(comm, y := torch.ones(5), algorithm="hierarchical")
    return str(caught.value), y.tolist()


KINDS, WIDTHS = (
    (torch.int32, torch.float32, torch.int32),
    (torch.int8, torch.complex128, torch.int8),
)


@pytest.mark.parametrize("what", ["lengths", "long", "nothing", "dtypes", "sizes"])
@pytest.mark.parametrize("algorithm", ["hierarchical", "auto"])
def test_unchecked_ranks_of_a_node_notice_what_others_put_into_their_memory(what, algorithm):
    """No message says it there: lengths 3 and 4 gave [2, 2, 2] and [2, 2, 2, 0]."""
    (first, total), *others = run(reduce_others, 3, what, algorithm, checked=False)
    assert others == [(first, total)] * 2 and total == [3.0] * 5
    assert first.startswith("rank ") and " in all_reduce #1 (" in first
    if what == "dtypes":
        assert first == (
            "rank 1 is in all_reduce #1 (float32 [4]); ranks 0, 2 are in all_reduce #1 (int32 [4])"
        )


def timed(comm, nbytes):
    x = torch.zeros(nbytes, dtype=torch.uint8)
    all_reduce(comm, x, algorithm="hierarchical", segment_bytes=1 << 40)
    return comm.clock()


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (3, 2), (2, 4), (4, 3), (1, 6)])
def test_equal_nodes_take_the_seconds_of_the_formula(nodes, per_node):
    where = [rank // per_node for rank in range(nodes * per_node)]
    graph = switched(len(where)).routes.graph
    for rank, node in enumerate(where):
        graph.nodes[f"gpu {rank}"]["server"] = node
    world = simulated(graph, charge=combined)
    for nbytes in (len(where), 504_000):
        theory = cost.hierarchical_all_reduce(where, nbytes, 1).seconds(ALPHA_S, BETA_S, GAMMA_S)
        assert max(run(timed, len(where), nbytes, on=world)) == pytest.approx(theory, rel=1e-9)


def clock_without_values(comm, algorithm):
    x = torch.empty(10**9, device="meta")
    all_reduce(comm, x, algorithm=algorithm, segment_bytes=1 << 40)
    return comm.clock()


def test_four_gigabytes_on_sixteen_servers_with_one_adapter_each():
    """The hierarchical one sends each node's sum once; doubling sends every rank's, lg p times."""
    world = simulated(coates_2013(), device="meta")
    seconds = {name: max(run(clock_without_values, 64, name, on=world, checked=False, timeout=None))
               for name in (*ALGORITHMS, "auto")}  # fmt: skip
    least = 2 * 4e9 * 15 / 16 / (54.5e9 / 8)  # over the adapter
    assert least < seconds["hierarchical"] < min(2 * least, seconds["recursive_doubling"] / 5)
    assert seconds["auto"] == seconds["hierarchical"]
