import pytest

from course.worlds import processes, run


def whoami(comm):
    return comm.rank, comm.node, comm.device.type


@pytest.mark.parametrize(
    "option, sentence",
    [
        ({"grace_s": "1"}, "grace_s is a number of seconds, 0 or more, not '1'"),
        ({"grace_s": -1}, "grace_s is a number of seconds, 0 or more, not -1"),
        ({"nodes": 2}, r"nodes names a machine for each rank, as \[0, 0\], not 2"),
        ({"nodes": [0]}, "nodes names a machine for 1 ranks, but there are 2"),
        ({"device": "tpu"}, 'device must be "cpu", "cuda" or None, not \'tpu\''),
    ],
)
def test_a_world_that_means_nothing_is_refused(option, sentence):
    """Some of these were a TypeError from within."""
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        run(whoami, 2, on=processes(**option))


@pytest.mark.parametrize("nodes", [(0, 1), [0, 1], range(2)])
def test_nodes_may_be_any_sequence(nodes):
    world = processes(nodes=nodes, device="cpu")
    assert run(whoami, 2, on=world) == [(0, 0, "cpu"), (1, 1, "cpu")]
