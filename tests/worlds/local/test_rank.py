import contextlib
import os
import socket
import sys
import traceback

from course.worlds import run
from course.worlds.framing import Inbox
from course.worlds.local.rank import Reporter, user_stack

held = []


def report_and_be_interrupted(report, line):
    """A report in whose midst a signal's handler reports, too."""

    class Line:
        def sendall(self, data):
            line.sendall(data)
            report("stack", [])

    report.control = Line()
    report("result", "a value")
    report.control = line
    report("stack", ["later"])


def test_what_interrupts_a_report_does_not_get_into_its_midst():
    """The answer to `where are you?` came into the midst of a result: `invalid load key`."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        report_and_be_interrupted(Reporter(2, theirs), theirs)
        inbox = Inbox(ours)
        assert [inbox.read() for _ in range(3)] == [
            [(2, "result", "a value")],
            [(2, "stack", ["later"])],
            [],
        ]


def test_a_launcher_that_is_gone_is_told_nothing():
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        Reporter(0, theirs)("result", 1)


def leave_files_open(comm, folder):
    held.append(open(f"{folder}/text of {comm.rank}", "w"))  # noqa: SIM115
    held.append(open(f"{folder}/bytes of {comm.rank}", "wb"))  # noqa: SIM115
    held[0].write("not closed")
    held[1].write(b"nor this")
    if comm.rank == 1:
        raise LookupError("on purpose")


def test_a_file_that_is_still_open_keeps_its_text(tmp_path):
    """Ranks end without the interpreter's end: such a file was empty."""
    with contextlib.suppress(RuntimeError):
        run(leave_files_open, 2, str(tmp_path))
    for rank in range(2):
        assert (tmp_path / f"text of {rank}").read_text() == "not closed"
        assert (tmp_path / f"bytes of {rank}").read_bytes() == b"nor this"


def say_in_unicode(comm):
    print("Σ")
    return sys.stdout.encoding, os.environ["PYTHONIOENCODING"]


def test_ranks_print_utf_8_whatever_a_script_prints(monkeypatch, capsys):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    assert run(say_in_unicode, 1) == [("utf-8", "latin-1")]
    assert capsys.readouterr().out == "[0] Σ\n"


def test_a_stack_ends_where_the_learner_called_us():
    frames = []

    class Line:
        def sendall(self, _):
            frames.append(sys._getframe())

    def calls_us():
        Reporter(0, Line())("stack", [])

    calls_us()
    names = [name for _, _, name in user_stack(frames[0])]
    assert names[-1] == "calls_us"


def test_a_frame_between_two_lines_is_told_by_its_first(monkeypatch):
    """In Python 3.11 the jump from a branch back to its loop has none, and a signal may come."""
    here = sys._getframe()
    monkeypatch.setattr(traceback, "walk_stack", lambda frame: [(frame, None)])
    first = (__file__, here.f_code.co_firstlineno, here.f_code.co_name)
    assert user_stack(here) == [first]
