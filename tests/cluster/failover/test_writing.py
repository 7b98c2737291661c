"""Files first, then the manifest, then the name."""

import os
import warnings
from pathlib import Path

import pytest
import torch

from course.cluster.failover.folder import CheckpointFolder
from course.cluster.failover.manifest import Manifest
from course.cluster.failover.writing import SHARED, Writing, own_file
from course.parallel.whole_files import save_whole
from course.worlds import RankError, run


def write(comm, path, steps=(5,), fail=None):
    """The order in which this rank has files reach the disk, and names change."""
    told, sync, rename = [], os.fsync, os.rename
    os.fsync = lambda fd: told.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name) or sync(fd)
    os.rename = lambda a, b: told.append((Path(a).name, Path(b).name)) or rename(a, b)
    for step in steps:
        files = {own_file(comm.rank): {"x": torch.ones(3) * comm.rank}}
        if comm.rank == 0:
            files[SHARED] = {"y": 1}
        if comm.rank == fail:
            files["impossible/\0"] = {}
        Writing(CheckpointFolder(path), step, files, {"part": ["line"]}, oldest=step).write(comm)
    return told


def test_files_then_manifest_then_name(tmp_path):
    first, second = run(write, 2, tmp_path)
    assert first == [
        "rank 0.unfinished", "step 5.unfinished", "shared.unfinished", "step 5.unfinished",
        "manifest.json.unfinished", "step 5.unfinished", ("step 5.unfinished", "step 5"),
        tmp_path.name,
    ]  # fmt: skip
    assert second == ["rank 1.unfinished", "step 5.unfinished"]
    manifest = Manifest.read(tmp_path / "step 5")
    assert (manifest.step, manifest.ranks, manifest.parts) == (5, 2, {"part": {"0": ["line"]}})
    assert sorted(manifest.files) == ["rank 0.pt", "rank 1.pt", "shared.pt"]
    assert not manifest.damage(tmp_path / "step 5", manifest.files)


def test_older_ones_go_when_it_has_its_name(tmp_path):
    told = run(write, 1, tmp_path, (2, 5))[0]
    renames = [names for names in told if isinstance(names, tuple)]
    assert renames[-2:] == [("step 5.unfinished", "step 5"), ("step 2", "step 2.removed")]
    assert os.listdir(tmp_path) == ["step 5"]


@pytest.mark.parametrize("fail", [0, 1])
def test_whatever_goes_wrong_all_ranks_hear_of_it_and_nothing_is_left(tmp_path, fail):
    with pytest.raises(RankError) as caught:
        run(write, 2, tmp_path, fail=fail)
    assert type(caught.value.exception) is OSError and len(caught.value.failures) == 2
    assert f"rank {fail} could not save step 5: embedded null" in str(caught.value.exception)
    assert os.listdir(tmp_path) == []


def test_torch_reads_a_shared_file_as_one_of_its_own_distributed_checkpoints(tmp_path):
    """torch's own tools turn one into the other: what all ranks have alike can leave for DCP."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import torch_save_to_dcp

    save_whole({"model": {"w": torch.arange(6.0)}}, tmp_path / SHARED)
    state = {"model": {"w": torch.zeros(6)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that it is one process
        torch_save_to_dcp(tmp_path / SHARED, tmp_path / "dcp")
        dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert state["model"]["w"].tolist() == [0, 1, 2, 3, 4, 5]
