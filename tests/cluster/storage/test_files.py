"""Files are samples in the order of their names; what is not there is told."""

import pytest

from course.cluster.storage.files import Files


def test_files_are_read_by_number(tmp_path):
    for name in ("b/2.txt", "a/10.txt", "a/1.txt", "c.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    files = Files(tmp_path, "*.txt")
    assert files.names == ["a/1.txt", "a/10.txt", "b/2.txt"]
    assert [files.read(number).decode() for number in range(len(files))] == files.names
    assert files.groups == [3]


def test_an_empty_folder_is_refused(tmp_path):
    (tmp_path / "folder.jpg").mkdir()
    with pytest.raises(FileNotFoundError, match=r"must hold files \*.jpg, and holds none"):
        Files(tmp_path, "*.jpg")
    with pytest.raises(FileNotFoundError, match="nowhere must hold files"):
        Files(tmp_path / "nowhere")


def test_a_file_that_went_away_is_named(tmp_path):
    (tmp_path / "1.txt").write_text("x")
    files = Files(tmp_path)
    (tmp_path / "1.txt").unlink()
    with pytest.raises(FileNotFoundError, match="1.txt was there when its folder was listed, and"):
        files.read(0)
