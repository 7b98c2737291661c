import os
import textwrap

import psutil
import pytest

from course.worlds import helper
from course.worlds.helper import HelperProgram, Kept


@pytest.fixture
def program(tmp_path):
    """Makes a program of a body, which finds its socket in `control`."""
    head = (
        "import os, signal, socket, sys, time\ncontrol = socket.socket(fileno=int(sys.argv[1]))\n"
    )
    made = []

    def make(body, *arguments):
        path = tmp_path / f"program_{len(made)}.py"
        path.write_text(head + textwrap.dedent(body))
        made.append(HelperProgram(path, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


LISTEN = "control.recv(1)"


def test_it_lives_until_it_is_closed(program):
    one = program(LISTEN)
    assert one.alive
    one.close()
    assert not one.alive and one.process.returncode == 0
    one.close()


def test_one_that_does_not_listen_is_ended(program, monkeypatch):
    monkeypatch.setattr(helper, "END_S", 0.2)
    one = program("control.sendall(b'.')\ntime.sleep(1000)")
    assert one.control.recv(1) == b"."
    one.close()
    assert one.process.returncode == -9


def test_its_last_words_are_what_it_said_or_how_it_ended(program):
    assert program("control.sendall(sys.argv[2].encode())", "a reason").last_words() == "a reason"
    assert program("os._exit(5)").last_words() == "it has ended with status 5"


def test_it_has_no_terminal_and_no_session_of_ours(program):
    one = program("control.sendall(str((os.getsid(0), sys.stdin.read())).encode())")
    assert one.last_words() == str((one.process.pid, ""))


def test_one_is_kept_for_each_shape_as_long_as_it_lives(program):
    kept = Kept(lambda *shape: program(LISTEN), most=2)
    first = kept(1)
    assert kept(1) is first
    second = kept(2)
    assert kept(1) is first and kept(2) is second
    first.process.kill()
    first.process.wait()
    assert kept(1) is not first and kept(1).alive
    kept(3)  # one too many: the one that was not asked for longest goes
    assert not second.alive and kept(1).alive and len(kept.programs) == 2


def test_the_oldest_has_ended_before_the_new_one_begins(program):
    alive = []

    def begin(*_):
        alive.append([each for each in kept.programs.values() if each.alive])
        return program(LISTEN)

    kept = Kept(begin)
    kept(1), kept(2)
    assert alive == [[], []]


def test_what_is_kept_has_no_more_open_files_than_it_needs(program):
    before = psutil.Process().num_fds()
    program(LISTEN).close()
    assert psutil.Process().num_fds() == before


def test_the_search_path_is_that_of_this_process(monkeypatch):
    monkeypatch.setattr("sys.path", ["", "/somewhere"])
    assert helper.search_path() == os.pathsep.join([".", "/somewhere"])
