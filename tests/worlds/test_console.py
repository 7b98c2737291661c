import io
import os
import re
import sys
import time

import pytest
import torch
from tqdm import tqdm

from course.worlds import RankError, console, run
from course.worlds.console import Excerpt, LineBuffer, write

TEXT = "one\ntwo\n\nΣ, ü and 海\nthe end"
SHOWN = "[3] one\n[3] two\n\n[3] Σ, ü and 海\n[3] the end\n"


@pytest.mark.parametrize(
    "text, shown", [(TEXT, SHOWN), (TEXT + "\n", SHOWN), ("", ""), ("\n", "\n")]
)
def test_lines_are_the_same_wherever_their_bytes_are_cut(text, shown):
    data = text.encode()
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            lines = LineBuffer("[3] ")
            pieces = data[:first], data[first:second], data[second:]
            assert "".join([lines.feed(p) for p in pieces if p] + [lines.feed(b"")]) == shown


def test_a_line_is_shown_once_it_is_complete():
    lines = LineBuffer("[0] ")
    takes = [lines.feed(piece) for piece in (b"a", b"b\nc", b"d\n", b"e", b"")]
    assert takes == ["", "[0] ab\n", "[0] cd\n", "", "[0] e\n"]


def test_a_line_that_is_rewritten_is_shown_as_it_grows():
    lines = LineBuffer("[0] ")
    pieces = [b"before\n", b"\r 0%", b"\r50%", b" ...", b"\r100%", b"\n", b"aft", b"er\n", b""]
    assert [lines.feed(piece) for piece in pieces] == [
        "[0] before\n", "\r[0]  0%", "\r[0] 50%", " ...", "\r[0] 100%", "\n", "", "[0] after\n", "",
    ]  # fmt: skip


def test_bytes_that_are_no_text_do_no_harm():
    lines = LineBuffer("[0] ")
    assert lines.feed(b"\xff\xfe\n") + lines.feed(b"\xe6") + lines.feed(b"") == "[0] ��\n[0] �\n"


def talk(comm):
    for word in ("first", "second"):
        print(f"{word} of {comm.rank}")
        comm.barrier()
    print(f"error of {comm.rank}", file=sys.stderr)
    print("no end", end="")


def test_output_is_grouped_by_rank(capsys):
    for _ in range(3):
        run(talk, 3)
        out, err = capsys.readouterr()
        assert out == "".join(
            f"[{r}] first of {r}\n[{r}] second of {r}\n[{r}] no end\n" for r in range(3)
        )
        assert err == "".join(f"[{r}] error of {r}\n" for r in range(3))


def test_live_output_comes_line_by_line_with_its_rank(capsys):
    run(talk, 3, live=True)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    words = ["first of {0}", "second of {0}", "no end"]
    assert sorted(lines) == sorted(f"[{r}] " + word.format(r) for r in range(3) for word in words)
    assert sorted(err.splitlines()) == [f"[{r}] error of {r}" for r in range(3)]
    for r in range(3):
        assert [line for line in lines if f"[{r}]" in line][:2] == [
            f"[{r}] first of {r}",
            f"[{r}] second of {r}",
        ]


class Answering(io.StringIO):
    """A place to print to that answers a word with a file."""

    def __init__(self, word, file):
        super().__init__()
        self.word, self.file = word, file

    def write(self, text):
        if self.word in text:
            self.file.touch()
        return super().write(text)


def ask(comm, speaker, path):
    """Whether the speaker's question was shown while the run was still going on."""
    if comm.rank != speaker:
        return None
    print("are you there?")
    end = time.monotonic() + 10
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.005)
    return os.path.exists(path)


@pytest.mark.parametrize("live", [False, True])
def test_rank_0_is_shown_at_once_and_if_live_so_are_the_others(monkeypatch, tmp_path, live):
    answer = tmp_path / "yes"
    monkeypatch.setattr(sys, "stdout", Answering("there?", answer))
    speaker = 1 if live else 0
    assert run(ask, 2, speaker, str(answer), live=live)[speaker] is True


def speak_last(comm):
    if comm.rank == 1:
        print("this comes at the end")
    comm.barrier()
    if comm.rank == 0:
        print("this comes first")


def test_the_others_are_shown_after_rank_0(capsys):
    run(speak_last, 2)
    assert capsys.readouterr().out == "[0] this comes first\n[1] this comes at the end\n"


def progress(comm):
    for _ in tqdm(range(4), disable=comm.rank > 0, mininterval=0, desc="epochs"):
        comm.barrier()
    print("done")


def test_a_progress_bar_of_rank_0_is_rewritten_in_place(capsys):
    run(progress, 2)
    out, err = capsys.readouterr()
    assert out == "[0] done\n[1] done\n"
    states = err.removesuffix("\n").split("\r")
    assert "\n" not in err[:-1]
    assert states[0] == "" and all(re.match(r"\[0\] epochs: +\d+%", s) for s in states[1:])
    counts = [re.search(r"\d/4", s).group() for s in states[1:]]
    assert list(dict.fromkeys(counts)) == ["0/4", "1/4", "2/4", "3/4", "4/4"]


def shout(comm):
    for number in range(20_000):
        print(f"{comm.rank} says {number} " + 50 * "x")
    os.write(2, 60_000 * b"e")


def test_a_rank_may_print_a_megabyte(capsys):
    run(shout, 2)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:20_000] == [f"[0] 0 says {n} " + 50 * "x" for n in range(20_000)]
    assert lines[20_000:] == [f"[1] 1 says {n} " + 50 * "x" for n in range(20_000)]
    assert err == "[0] " + 60_000 * "e" + "\n[1] " + 60_000 * "e" + "\n"


@pytest.mark.parametrize("end", [b"", b"\nnext\n"])
def test_of_a_line_that_does_not_end_the_beginning_is_kept(monkeypatch, end):
    """It was joined and searched anew for each piece: 40 MB took 9 s, 200 MB minutes."""
    monkeypatch.setattr(console, "LINE_CHARACTERS", 10)
    lines = LineBuffer("[0] ")
    assert [lines.feed(b"abcdefg") for _ in range(1000)] == [""] * 1000
    assert lines.held == "abcdefgabc"
    shown = lines.feed(end) if end else ""
    shown += lines.feed(b"")
    rest = "[0] next\n" if end else ""
    assert shown == "[0] abcdefgabc … 6990 characters left out\n" + rest


def test_every_long_line_is_cut_wherever_its_bytes_are(monkeypatch):
    monkeypatch.setattr(console, "LINE_CHARACTERS", 4)
    data = b"12345\n1234\n123456\n1"
    shown = "12345\n1234\n123456\n1\n".replace("12345\n", "1234 … 1 character left out\n", 1)
    shown = shown.replace("123456\n", "1234 … 2 characters left out\n")
    for cut in range(len(data) + 1):
        lines = LineBuffer("")
        pieces = [piece for piece in (data[:cut], data[cut:]) if piece]
        assert "".join([lines.feed(piece) for piece in [*pieces, b""]]) == shown


def test_a_line_that_is_rewritten_is_not_cut(monkeypatch):
    monkeypatch.setattr(console, "LINE_CHARACTERS", 4)
    assert LineBuffer("").feed(b"\r12345\r67890") == "\r12345\r67890"


def test_of_a_long_text_both_ends_are_kept(monkeypatch):
    """A rank in an endless print took 3.6 GB of the launcher in 10 s."""
    monkeypatch.setattr(console, "KEPT_CHARACTERS", 20)
    excerpt, lines = Excerpt(), [f"line {number:03}\n" for number in range(1000)]
    for line in lines:
        excerpt.append(line)
        assert sum(map(len, [*excerpt.head, *excerpt.tail])) <= 2 * (20 + len(line))
    assert excerpt.text() == "".join([*lines[:3], "… 994 lines left out\n", *lines[-3:]])


def print_for_ever(comm):
    if comm.rank == 0:
        comm.recv(torch.empty(1), 1)
        raise LookupError("the real cause")
    for number in range(60_000):
        print(f"{number:08} " + 90 * "x")
    comm.send(torch.ones(1), 0)
    while True:
        print("and so on")


def test_a_rank_that_prints_for_ever_neither_fills_the_notebook_nor_keeps_it(capsys):
    with pytest.raises(RankError, match="rank 0 failed: LookupError: the real cause"):
        run(print_for_ever, 2)
    out = capsys.readouterr().out
    assert 1.5 * console.KEPT_CHARACTERS < len(out) < 4 * console.KEPT_CHARACTERS
    assert out.startswith("[1] 00000000 xxx") and out.endswith("[1] and so on\n")
    assert re.search(r"^… \d+ lines left out$", out, re.MULTILINE)


class Narrow(io.StringIO):
    """A script's output under PYTHONIOENCODING=ascii."""

    encoding = "ascii"

    def write(self, text):
        text.encode("ascii")
        return super().write(text)


def test_a_stream_of_few_letters_or_none_does_no_harm(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Narrow())
    write("out", "Σ is a sum\n")
    assert sys.stdout.getvalue() == "\\u03a3 is a sum\n"
    monkeypatch.setattr(sys, "stdout", None)
    write("out", "nobody hears\n")


def speak_and_fail(comm):
    print(f"{comm.rank} was here")
    if comm.rank == 1:
        os.write(1, b"and here")
        os._exit(1)
    comm.barrier()


def test_what_was_printed_before_a_failure_is_shown(capsys):
    with pytest.raises(RankError, match="rank 1 exited with status 1"):
        run(speak_and_fail, 2)
    assert capsys.readouterr().out == "[0] 0 was here\n[1] 1 was here\n[1] and here\n"
