"""`slurm()` on a real Slurm of four nodes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from course.worlds import run, slurm
from tests.worlds.slurm.programs import summed

pytestmark = pytest.mark.usefixtures("at_box")


@pytest.mark.parametrize("ranks, nodes", [(4, 4), (3, 2), (4, 2)])
def test_ranks_live_in_blocks_on_the_nodes_of_one_job(box, ranks, nodes):
    world = slurm(nodes=nodes, options=(f"--nodelist=n[1-{nodes}]",))
    for _ in range(2):  # the second run has the nodes of the first
        values = run(summed, ranks, on=world)
        where = [rank * nodes // ranks for rank in range(ranks)]
        total = ranks * (ranks - 1) / 2
        assert values == [(rank, f"n{node + 1}", node, total) for rank, node in enumerate(where)]
        assert len(box.ask("squeue", "--noheader", "--states=R").splitlines()) == 1


def native_sum(comm):
    x = torch.full((5,), float(comm.rank))
    comm.native.all_reduce(x)
    some = comm.split(comm.rank % 2)
    y = torch.ones(3)
    some.native.all_reduce(y)
    return x[0].item(), y[0].item()


def test_gloo_between_nodes():
    assert run(native_sum, 4, on=slurm(nodes=2)) == [(6.0, 2.0)] * 4


@pytest.mark.parametrize("nodes", [(2, 2, 2), (4, 2, 4)])
def test_runs_of_several_threads_go_one_after_the_other(nodes):
    """They mixed up what agents said, or took one another's nodes."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda n: run(summed, 4, on=slurm(nodes=n)), nodes)
        assert [[total for *_, total in values] for values in found] == [[6.0] * 4] * 3


def test_many_more_ranks_than_cores_are_refused():
    with pytest.raises(ValueError, match="5 ranks on the . cores that the job has on n. would"):
        run(summed, 5, on=slurm(cpus_per_node=1))


def test_available(monkeypatch, tmp_path):
    assert slurm.available() is None
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho down")
    sinfo.chmod(0o755)
    with monkeypatch.context() as only_down:
        only_down.setenv("PATH", str(tmp_path), prepend=":")
        assert slurm.available() == "no partition of this Slurm is up (see `sinfo`)"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.available().startswith("on=slurm() needs Slurm, and there is no srun here")
    with pytest.raises(ValueError, match="there is no srun here"):
        run(summed, 2, on=slurm())
