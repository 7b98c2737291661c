"""A problem sheet, a plan and its rows: answers that were really likely."""

from course.classroom.problems.p27_capstone import (
    NETWORK,
    SHEET,
    my_rows,
    my_rows_with_the_bug,
    within_budget,
)
from course.cluster.planning import A100_ETHERNET, DGX_A100, DGX_H100, RESTING, Plan, Transformer
from tests.classroom.gallery import Gallery, gallery_tests


def plan_with(node=DGX_A100, nodes=2, **fields):
    return Plan(**{"network": NETWORK, "node": node, "nodes": nodes, "rows": 256} | fields)


def strided(grid, rows):
    return range(grid.coordinates["data"], rows, grid.axes["data"])


def by_division(grid, rows):
    each = -(-rows // grid.axes["data"])
    start = grid.coordinates["data"] * each
    return list(range(start, min(rows, start + each)))


def by_world(grid, rows):
    start, stop = (rows * (grid.comm.rank + more) // grid.comm.size for more in (0, 1))
    return range(start, stop)


def rank_in_data_parts(grid, rows):
    return range(grid.comm.rank % grid.axes["data"], rows, grid.axes["data"])


def rest_left_out(grid, rows):
    each = rows // grid.axes["data"]
    return range(grid.coordinates["data"] * each, (grid.coordinates["data"] + 1) * each)


def all_rows(grid, rows):
    return range(rows)


def data_of_all(grid, rows):
    return range(grid.coordinates["data"], rows, grid.comm.size)


def one_too_far(grid, rows):
    return [row + 1 for row in my_rows(grid, rows)]


def rows_not_returned(grid, rows):
    my_rows(grid, rows)


def numbers(name):
    _, right, _, slips, _, _, _ = SHEET[name]
    wrong = {sentence: slip for slip, sentence in slips.items()}
    wrong |= {"that is another number": right * 1.13, "a number is wanted": "many"}
    return Gallery(name, ..., [right, f"{right:.4g}", right * 1.004], wrong)


GALLERIES = [
    *map(numbers, SHEET),
    Gallery("within_budget", ..., [
        within_budget(), within_budget,
        plan_with(DGX_H100, 1, data=8, micro_batches=8, sharded=True),
        plan_with(data=8, tensor=2, micro_batches=8, sharded=True),
    ], {
        "a Plan(...) is wanted": "two A100 servers",
        "train the network of this notebook": plan_with(network=Transformer(4096, 32, 4, 2048),
                                                        data=16),
        "a batch has 256 rows, not 128": plan_with(data=4, tensor=4, rows=128, sharded=True),
        "the servers are A100": Plan(NETWORK, RESTING, 8, data=8, tensor=2, rows=256),
        "GB too little": plan_with(data=16, micro_batches=8),
        "needs 36.2 GB": plan_with(data=8, tensor=2, micro_batches=4, sharded=True),
        "kW 26.0 of 21.0: 5.0 too much": plan_with(nodes=4, data=8, tensor=4, micro_batches=4,
                                                   sharded=True),
        "money": plan_with(DGX_H100, 2, data=4, tensor=4, micro_batches=4),
        "days": plan_with(A100_ETHERNET, data=2, tensor=8, micro_batches=8),
    }),
    Gallery("my_rows", my_rows_with_the_bug, [my_rows, strided, by_division], {
        "they would compute with different rows": by_world,
        "ranks 0 and 1 work on one copy": rank_in_data_parts,
        "nobody reads row 6": rest_left_out,
        "row 0 is read by two copies": all_rows,
        "nobody reads row 2": data_of_all,
        "nobody reads row 0": one_too_far,
        "nothing came back": rows_not_returned,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
