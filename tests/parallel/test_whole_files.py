"""A file is whole, or what was there before is."""

import os
import resource
import signal

import pytest
import torch

from course.parallel.whole_files import digest_of, save_whole, sync_folder

STATE = {"x": torch.arange(5.0), "text": "é", "pair": (1, None)}


def test_what_is_saved_is_loaded_and_its_digest_is_the_file_s(tmp_path):
    digest = save_whole(STATE, tmp_path / "new" / "a.pt")
    assert digest == digest_of(tmp_path / "new" / "a.pt")
    assert digest.nbytes == (tmp_path / "new" / "a.pt").stat().st_size
    loaded = torch.load(tmp_path / "new" / "a.pt", weights_only=True)
    assert torch.equal(loaded["x"], STATE["x"]) and loaded["pair"] == (1, None)
    assert save_whole({"x": STATE["x"] + 1}, tmp_path / "new" / "a.pt") != digest


def test_who_dies_while_writing_leaves_what_was_there(tmp_path, monkeypatch):
    digest = save_whole(STATE, tmp_path / "a.pt")

    def killed(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        save_whole({"other": 1}, tmp_path / "a.pt")
    assert digest_of(tmp_path / "a.pt") == digest
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


@pytest.fixture
def small_disk():
    """No file may have more than 10 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_takes_no_more(tmp_path, small_disk):
    save_whole(STATE, tmp_path / "a.pt")
    with pytest.raises(OSError, match="File too large"):
        save_whole({"x": torch.zeros(100_000)}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt")["text"] == "é"
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_names_reach_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    save_whole(STATE, tmp_path / "a.pt")
    assert synced == [(tmp_path / "a.pt").stat().st_ino, tmp_path.stat().st_ino]
    sync_folder(tmp_path)
    assert synced[-1] == tmp_path.stat().st_ino
