"""The scale model of notebook 27 keeps what its rule says, whatever plan is signed."""

import itertools

import pytest

from course.classroom.record import code_cells
from course.classroom.workbook import BOOK
from course.cluster.planning import (
    A100_ETHERNET,
    DGX_A100,
    DGX_H100,
    Plan,
    Transformer,
    step_parts,
)

ACHIEVED = 0.6
NETWORKS = Transformer(12288, 96, 4, 2048), Transformer(5120, 40, 9, 1000)
WAYS = [(2, 1, 4, 1), (8, 1, 4, 4), (1, 4, 8, 4), (3, 2, 4, 3), (4, 2, 4, 4), (3, 1, 8, 3),
        (16, 1, 1, 2), (1, 8, 1, 1), (8, 1, 1, 1), (1, 3, 8, 3)]  # fmt: skip


@pytest.fixture(scope="module")
def cells():
    """What the cells define that hold the rule."""
    asked = "import json", "network = Transformer", "def fewer_ranks", "STEP_S = "
    sources = code_cells(BOOK / "notebooks" / "27_capstone.ipynb")
    found = [cell for cell in sources if cell.startswith(asked)]
    assert len(found) == len(asked)
    space = {}
    for cell in found:
        exec(cell, space)
    space["assumed"] = space["assumed"]._replace(achieved=ACHIEVED)
    return space


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "x".join(map(str, ways)))
def test_a_scale_model_keeps_the_ways_the_rows_and_the_share_of_the_cables(cells, ways):
    data, pipeline, tensor, nodes = ways
    for network, kind in itertools.product(NETWORKS, (DGX_A100, A100_ETHERNET, DGX_H100)):
        if network.blocks < pipeline:
            continue
        plan = Plan(network, kind, nodes, data, pipeline, tensor, 48 * data, 4, data > 1)
        model, world = cells["paced"](cells["scale_model"](plan), plan)
        assert model.ranks == world.number * world.ranks_per_host <= 8
        assert [size > 1 for size in model.axes.values()] == [way > 1 for way in ways[:3]]
        assert (model.rows // model.data, model.micro_batches) == (48, 4)
        assert model.sharded == plan.sharded and model.nodes <= nodes
        assert (model.nodes > 1) == (nodes > 1)
        assert nodes > 1 or (cells["on_cables"](model, step_parts(model)), world.rate[:4]) == (
            0,
            "1000",
        )
        sizes = model.network
        assert sizes.length / sizes.features == pytest.approx(
            network.length / network.features, rel=0.1
        )
        there, here = step_parts(plan, ACHIEVED), step_parts(model)
        wires = cells["on_cables"](model, here)
        if 5 < float(world.rate[:-4]) < 1000:
            assert wires / (wires + here["arithmetic"]) == pytest.approx(
                cells["on_cables"](plan, there)
                / (cells["on_cables"](plan, there) + there["arithmetic"]),
                rel=0.02,
            )


def test_a_plan_of_few_ranks_keeps_its_degrees(cells):
    assert cells["fewer_ranks"]({"data": 2, "pipeline": 2, "tensor": 2}) == {
        "data": 2, "pipeline": 2, "tensor": 2}  # fmt: skip
    assert cells["fewer_ranks"]({"data": 3, "pipeline": 1, "tensor": 8}) == {
        "data": 3, "pipeline": 1, "tensor": 2}  # fmt: skip
