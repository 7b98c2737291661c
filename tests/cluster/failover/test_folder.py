"""The folder: whole ones under their names, one training at a time, nothing written over."""

import multiprocessing
import os

import pytest

from course.cluster.failover import folder as module
from course.cluster.failover.folder import CheckpointFolder


@pytest.fixture
def folder(tmp_path):
    folder = CheckpointFolder(tmp_path / "new")
    folder.lock()
    yield folder
    folder.unlock()


def written(folder, step, text="x"):
    folder.unfinished(step).mkdir(parents=True)
    (folder.unfinished(step) / "rank 0.pt").write_text(text)
    folder.commit(step)


def test_what_is_finished_has_a_name(folder):
    for step in (8, 100, 30):
        written(folder, step)
    folder.unfinished(200).mkdir()
    (folder.path / "notes").mkdir()
    (folder.path / "step 7").write_text("a file of somebody else")
    assert folder.steps() == [8, 30, 100]
    assert CheckpointFolder(folder.path / "none").steps() == []


def test_what_has_the_name_already_is_moved_aside(folder):
    for text in ("first", "second", "third"):
        written(folder, 4, text)
    told = {path.name: (path / "rank 0.pt").read_text() for path in folder.path.iterdir()}
    assert told == {
        "step 4": "third", "step 4.aside 1": "first", "step 4.aside 2": "second"
    }  # fmt: skip
    assert folder.steps() == [4]


def test_older_ones_are_removed_and_nothing_else(folder):
    for step in (2, 4, 4, 6):
        written(folder, step)
    folder.prune(4)
    assert sorted(os.listdir(folder.path)) == ["step 4", "step 4.aside 1", "step 6"]


def test_what_was_never_finished_is_removed_by_who_comes_next(folder):
    written(folder, 2)
    folder.unfinished(4).mkdir()
    (folder.path / "step 1.removed").mkdir()
    (folder.path / "step 4.unfinished.mine").mkdir()
    folder.unlock()
    folder.lock()
    assert sorted(os.listdir(folder.path)) == ["step 2", "step 4.unfinished.mine"]


def test_one_training_at_a_time(folder):
    with pytest.raises(ValueError, match="new is in use by another training"):
        CheckpointFolder(folder.path).lock()
    folder.unlock()
    again = CheckpointFolder(folder.path)
    again.lock()
    again.unlock()


def test_who_was_killed_has_it_no_more(tmp_path):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path, theirs), daemon=True)
    process.start()
    try:
        ours.recv()
        with pytest.raises(ValueError, match="in use"):
            CheckpointFolder(tmp_path).lock()
    finally:
        process.kill()
        process.join()
    folder = CheckpointFolder(tmp_path)
    folder.lock()
    folder.unlock()


def hold(path, pipe):
    CheckpointFolder(path).lock()  # the folder object is gone, its lock is not
    pipe.send("locked")
    pipe.recv()


def test_a_process_that_was_forked_does_not_keep_it(folder):
    """As the workers of torch's DataLoader, which may live on."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=live, args=(theirs,), daemon=True)
    process.start()
    try:
        ours.recv()
        folder.unlock()
        CheckpointFolder(folder.path).lock()
    finally:
        process.kill()
        process.join()


def live(pipe):
    pipe.send("living")
    pipe.recv()


def test_who_could_not_take_it_does_not_keep_it(folder, monkeypatch):
    folder.unfinished(4).mkdir()
    folder.unlock()
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", cannot)
        with pytest.raises(OSError, match="stays"):
            folder.lock()
    CheckpointFolder(folder.path).lock()


def cannot(path):
    raise OSError(f"{path} stays")


def test_it_is_kept_until_the_last_holder_leaves(folder):
    folder.hold("a save")
    folder.unlock()
    with pytest.raises(ValueError, match="in use"):
        CheckpointFolder(folder.path).lock()
    folder.unlock("a save")
    CheckpointFolder(folder.path).lock()


def test_links_and_files_of_others_are_not_followed(folder, tmp_path):
    """An old checkpoint may have been moved to an archive, and a link left in its place."""
    written(folder, 2)
    folder.of(2).rename(tmp_path / "archive")
    folder.of(2).symlink_to(tmp_path / "archive")
    folder.unfinished(3).write_text("a file of somebody else")
    written(folder, 4)
    folder.prune(4)
    folder.unlock()
    folder.lock()
    assert sorted(os.listdir(folder.path)) == ["step 3.unfinished", "step 4"]
    assert os.listdir(tmp_path / "archive") == ["rank 0.pt"]


def test_a_failed_one_is_discarded(folder):
    folder.unfinished(4).mkdir()
    folder.discard(4), folder.discard(5)
    assert list(folder.path.iterdir()) == []
