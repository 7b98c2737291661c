"""The learner's copy: what is cleared, what is never touched, when a newer original is reported."""

import json
import os
import re
import stat
from pathlib import Path

import pytest

from course.classroom import workbook
from course.classroom.workbook import copy_notebooks, handed_out, main, told, without_guesses


def code(source, tags=(), **left_behind):
    output = {"output_type": "stream", "name": "stdout", "text": ["42\n"]}
    metadata = left_behind | ({"tags": list(tags)} if tags else {})
    return {"cell_type": "code", "id": "c", "metadata": metadata, "source": source,
            "execution_count": 7, "outputs": [output]}  # fmt: skip


def text(source):
    return {"cell_type": "markdown", "id": "m", "metadata": {}, "source": source}


def write(path, *cells, **metadata):
    path.parent.mkdir(exist_ok=True)
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    return path


def sources(path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


@pytest.fixture
def folders(tmp_path):
    """Two notebooks, and where the workbook will be."""
    originals = tmp_path / "notebooks"
    write(originals / "00_start.ipynb", text("# Start"), code("print(6 * 7)"))
    write(originals / "01_more.ipynb", code('guess = predict("How many?", 42)'))
    return originals, tmp_path / "workbook"


def test_the_copy_holds_the_notebook_without_outputs_and_guesses(folders):
    originals, copies = folders
    assert copy_notebooks(originals, copies).copied == ["00_start.ipynb", "01_more.ipynb"]
    assert sources(copies / "00_start.ipynb") == ["# Start", "print(6 * 7)"]
    assert sources(copies / "01_more.ipynb") == ['guess = predict("How many?", ...)']
    cell = json.loads((copies / "00_start.ipynb").read_text())["cells"][1]
    assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert sorted(os.listdir(copies)) == ["00_start.ipynb", "01_more.ipynb"]


def test_a_copy_keeps_tags_names_python3_and_drops_what_running_left(tmp_path):
    left = {"execution": {"started": "09:00"}, "collapsed": True}
    cell = code("1", tags=["nbval-ignore-output"], **left)
    copy = handed_out(write(tmp_path / "a.ipynb", cell, widgets={"state": {}}, kernelspec={}))
    assert copy["cells"][0]["metadata"] == {"tags": ["nbval-ignore-output"]}
    assert copy["metadata"]["kernelspec"]["name"] == "python3"
    assert "widgets" not in copy["metadata"]
    assert (copy["nbformat"], copy["nbformat_minor"]) == (4, 5)


def test_what_the_learner_wrote_is_never_overwritten(folders):
    originals, copies = folders
    copy_notebooks(originals, copies)
    mine = copies / "01_more.ipynb"
    mine.write_text(mine.read_text().replace("...", "99"))
    before = mine.read_bytes(), mine.stat().st_mtime_ns
    report = copy_notebooks(originals, copies)
    assert report.kept == ["00_start.ipynb", "01_more.ipynb"]
    assert not (report.copied or report.newer or report.unknown)
    assert (mine.read_bytes(), mine.stat().st_mtime_ns) == before


@pytest.mark.parametrize("content", ["", "my notes", "[1]", '{"metadata": {}}', '{"metadata": 3}'])
def test_a_file_that_is_no_copy_is_left_alone_and_said_so(folders, content):
    originals, copies = folders
    copies.mkdir()
    (copies / "01_more.ipynb").write_text(content)
    report = copy_notebooks(originals, copies)
    assert (report.copied, report.unknown) == (["00_start.ipynb"], ["01_more.ipynb"])
    assert (copies / "01_more.ipynb").read_text() == content
    assert "01_more.ipynb: no copy of the book's notebook, left alone" in told(report, copies)


def test_a_dangling_link_is_a_taken_name(folders):
    originals, copies = folders
    copies.mkdir()
    (copies / "01_more.ipynb").symlink_to("gone.ipynb")
    assert copy_notebooks(originals, copies).unknown == ["01_more.ipynb"]
    assert not (copies / "gone.ipynb").exists()


def test_a_newer_original_is_reported_and_comes_once_the_learner_makes_room(folders):
    originals, copies = folders
    copy_notebooks(originals, copies)
    write(originals / "00_start.ipynb", text("# Start, better"), code("print(6 * 7)"))
    report = copy_notebooks(originals, copies)
    assert (report.newer, report.kept) == (["00_start.ipynb"], ["01_more.ipynb"])
    assert re.search("00_start.ipynb: a newer original exists; rename yours", told(report, copies))
    assert sources(copies / "00_start.ipynb")[0] == "# Start"
    (copies / "00_start.ipynb").rename(copies / "00_mine.ipynb")
    assert copy_notebooks(originals, copies).copied == ["00_start.ipynb"]
    assert sources(copies / "00_start.ipynb")[0] == "# Start, better"


def test_an_original_that_was_only_run_again_is_not_newer(folders):
    originals, copies = folders
    copy_notebooks(originals, copies)
    again = code(["print(6 * 7)"], execution={"started": "10:00"}) | {"id": "d", "outputs": []}
    write(originals / "00_start.ipynb", text("# Start"), again, language_info={"version": "3.12"})
    assert copy_notebooks(originals, copies).newer == []


def test_two_commands_at_once_do_not_overwrite_each_other(folders, monkeypatch):
    originals, copies = folders
    claim = workbook.claim

    def somebody_was_faster(path, written):
        path.write_text("theirs")
        return claim(path, written)

    monkeypatch.setattr(workbook, "claim", somebody_was_faster)
    assert copy_notebooks(originals, copies).copied == []
    assert (copies / "00_start.ipynb").read_text() == "theirs"


def test_without_hard_links_a_copy_is_whole_and_a_taken_name_still_safe(folders, monkeypatch):
    def refuse(*names):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    test_two_commands_at_once_do_not_overwrite_each_other(folders, monkeypatch)
    monkeypatch.undo()
    monkeypatch.setattr(os, "link", refuse)
    originals, copies = folders
    (copies / "00_start.ipynb").unlink()
    assert copy_notebooks(originals, copies).copied == ["00_start.ipynb"]
    assert sources(copies / "00_start.ipynb") == ["# Start", "print(6 * 7)"]


def test_a_copy_that_breaks_off_leaves_nothing(folders, monkeypatch):
    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        copy_notebooks(*folders)
    assert os.listdir(folders[1]) == []


def test_a_guess_in_a_command_of_ipython_is_not_handed_out():
    with pytest.raises(SyntaxError):
        without_guesses('%time predict("a", 3)')


def test_links_in_the_way_are_not_written_through(folders, tmp_path):
    originals, copies = folders
    copies.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (copies / f".00_start.ipynb.{os.getpid()}.new").symlink_to(precious)
    (copies / "01_more.ipynb").symlink_to(precious)
    assert copy_notebooks(originals, copies).copied == ["00_start.ipynb"]
    assert precious.read_text() == "precious"
    assert not (copies / "00_start.ipynb").is_symlink()
    assert stat.S_IMODE((copies / "00_start.ipynb").stat().st_mode) == 0o600


def test_without_hard_links_a_copy_that_breaks_off_leaves_nothing(folders, monkeypatch):
    def refuse(*names):
        raise OSError("not here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="not here"):
        copy_notebooks(*folders)
    assert os.listdir(folders[1]) == []


@pytest.mark.parametrize(
    "guessed, dots",
    [
        ('predict("q", 3)', 'predict("q", ...)'),
        ('predict("q", ...)', 'predict("q", ...)'),
        ('g = predict("wie groß", 3, "s")\ng', 'g = predict("wie groß", ..., "s")\ng'),
        ('predict("q", value=[1, 2], unit="s")', 'predict("q", value=..., unit="s")'),
        ('exercises.predict("q", 1 / 3)', 'exercises.predict("q", ...)'),
        ('predict(\n    "q",\n    (1 +\n     2),\n)', 'predict(\n    "q",\n    (...),\n)'),
        ('predict("a", 1); predict("b", 2)', 'predict("a", ...); predict("b", ...)'),
        ('predict("q")', 'predict("q")'),
        ('predict("a", predict("b", 2))', 'predict("a", ...)'),
        ('%%time\npredict("a", 3)', '%%time\npredict("a", ...)'),
        ('if x:\n    !ls\n    predict("a", 3)', 'if x:\n    !ls\n    predict("a", ...)'),
        ('model.fit(3)  # no predict(x, 3)', 'model.fit(3)  # no predict(x, 3)'),
    ],
)  # fmt: skip
def test_the_value_of_a_prediction_becomes_dots(guessed, dots):
    assert without_guesses(guessed) == dots


def test_in_a_cell_tagged_prediction_what_is_assigned_becomes_dots(tmp_path):
    cells = [code("bytes_sent = 4 * 1000\nsteps = 3", tags=["prediction"]), code("n = 4")]
    copy = handed_out(write(tmp_path / "a.ipynb", *cells))
    assert "".join(copy["cells"][0]["source"]) == "bytes_sent = ...\nsteps = ..."
    assert "".join(copy["cells"][1]["source"]) == "n = 4"


@pytest.mark.parametrize(
    "content, why",
    [
        ("no JSON", "Expecting value"),
        ("{}", "cells"),
        ("[" * 100_000, "recursion"),
        (json.dumps({"cells": [text("\ud800")]}), "surrogates not allowed"),
        ('{"cells": [{"cell_type": "code"}]}', "metadata"),
        (json.dumps({"cells": [code('predict("q", 3')]}), "was never closed"),
    ],
)
def test_an_original_that_cannot_be_read_is_named_and_the_others_come(folders, content, why):
    originals, copies = folders
    (originals / "00_broken.ipynb").write_text(content)
    report = copy_notebooks(originals, copies)
    assert report.copied == ["00_start.ipynb", "01_more.ipynb"]
    said = told(report, copies)
    assert re.search(f"00_broken.ipynb cannot be handed out: .*{why}", said), said


def test_an_original_that_is_gone_or_a_folder_is_named_and_the_others_come(folders):
    originals, copies = folders
    (originals / "00_folder.ipynb").mkdir()
    (originals / "00_gone.ipynb").symlink_to("nowhere")
    report = copy_notebooks(originals, copies)
    assert (len(report.copied), len(report.broken)) == (2, 2)


def test_the_command_reports_and_fails_in_a_sentence(folders, tmp_path, capsys):
    originals, copies = folders
    main([str(copies), "--originals", str(originals)])
    assert capsys.readouterr().out == f"{copies}: 2 new, 0 as they were\n"
    with pytest.raises(SystemExit, match="no workbook was made: there is no notebook in"):
        main([str(copies), "--originals", str(tmp_path / "nowhere")])
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="no workbook was made: .*File exists"):
        main([str(tmp_path / "file"), "--originals", str(originals)])


def test_every_notebook_of_the_book_can_be_handed_out(tmp_path):
    book = Path(__file__).parents[2] / "notebooks"
    report = copy_notebooks(book, tmp_path)
    assert report.copied == sorted(path.name for path in book.glob("*.ipynb"))
