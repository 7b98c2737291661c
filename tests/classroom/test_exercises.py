"""check, hint, solution, predict: whatever a learner does, a notebook goes on."""

import json
import linecache
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from IPython.lib.pretty import pretty

from course.classroom import exercises, limits, progress
from course.classroom.exercises import check, find, hint, predict, solution, untouched

pytestmark = pytest.mark.usefixtures("small_book")
ROOT = Path(__file__).parents[2]


def double(x):
    return x + x


def triple(x):
    return 3 * x


def same(x):
    return x


def test_a_right_answer():
    verdict = check("double", double)
    assert verdict.right is True
    assert repr(verdict) == "right: in one line."
    assert repr(check("nine", 9)) == "right: well done."


def test_each_wrong_answer_has_its_sentence():
    verdict = check("double", triple)
    assert verdict.right is False
    assert repr(verdict) == "not right yet: twice 3 is 6, not 9."
    assert check("double", same).sentence == "x itself came back."


def test_a_stub_is_not_done_yet_and_no_try(ledger_file):
    for stub in stubs():
        verdict = check("double", stub)
        assert verdict.right is None
        assert repr(verdict) == "not done yet: write double(x), which returns twice x."
    assert repr(check("nine", ...)) == "not done yet: how much is 3 x 3?"
    assert check("nine", (1, ...)).right is None
    assert not ledger_file.exists()


def stubs():
    def dots(x):
        """Twice x."""
        ...

    def passed(x):
        pass

    def raised(x):
        raise NotImplementedError

    def raised_with_words(x):
        """Twice x."""
        raise NotImplementedError("your turn")

    def returned(x):
        # your code
        return ...

    def returned_nothing(x):
        return

    return [dots, passed, raised, raised_with_words, returned, returned_nothing]


def test_what_has_work_in_it_is_no_stub():
    def half_done(x):
        print(x + x)
        raise NotImplementedError

    def returns_zero(x):
        return 0

    def raises_another(x):
        raise ValueError

    answers = [half_done, returns_zero, raises_another, lambda x: x, 0, None, ""]
    assert not any(map(untouched, answers))


def test_code_that_was_handed_out_is_a_stub_until_it_changes():
    def halve(x):
        """Another docstring."""
        y = x / 3  # a comment
        return y

    def repaired(x):
        y = x / 2
        return y

    assert check("repair", halve).right is None
    assert check("repair", repaired).right is True
    assert check("repair", double).sentence == "half of 4 is 2."


def test_an_exception_shows_the_learners_line():
    answer = from_a_cell("def double(x):\n    text = 'a'\n    return text + x\n", "double")
    assert repr(check("double", answer)) == (
        "not right yet: your function stopped:\n"
        "    double, line 3 of your cell:  return text + x\n"
        '    TypeError: can only concatenate str (not "int") to str'
    )


def test_the_learners_line_is_found_below_other_code():
    source = "import torch\ndef double(x):\n    return torch.zeros(2) @ torch.zeros(x)\n"
    sentence = check("double", from_a_cell(source, "double")).sentence
    assert "double, line 3 of your cell:  return torch.zeros(2) @ torch.zeros(x)" in sentence
    assert "RuntimeError: " in sentence and "site-packages" not in sentence


def test_what_cannot_be_called_is_told_without_a_line():
    assert check("double", 6).sentence == (
        "your answer could not be checked:\n    TypeError: 'int' object is not callable"
    )
    sentence = check("double", lambda: 6).sentence
    assert "takes 0 positional arguments but 1 was given" in sentence


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Classless:
    @property
    def __class__(self):
        raise RuntimeError("no class")


def prints_for_ever(x):
    while True:
        print("still here " * 1000)


def calls_itself(x):
    return calls_itself(x)


def wants_everything(x):
    return bytearray(10**17)


def raises_without_words(x):
    raise Wordless


def interrupts_itself(x):
    raise KeyboardInterrupt


def closes_the_output(x):
    sys.stdout.close()
    return None + x


def forks(x):
    os.fork()
    return None + x


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (prints_for_ever, "does not come to an end"),
        (calls_itself, "RecursionError"),
        (wants_everything, "MemoryError"),
        (raises_without_words, "Wordless"),
        (interrupts_itself, "KeyboardInterrupt"),
        (closes_the_output, "TypeError"),
        (forks, "TypeError"),
        (Classless, "RuntimeError: no class"),
    ],
)
def test_a_hostile_answer_stops_nothing(answer, said, monkeypatch, capsys, ledger_file):
    if answer is prints_for_ever:
        monkeypatch.setattr(exercises, "LIMIT_S", 0.3)
    verdict = check("double", answer() if answer is Classless else answer)
    assert verdict.right is False and said in verdict.sentence
    assert json.loads(ledger_file.read_text())["exercises"]["double"]["tries"] == 1
    print("the notebook goes on")
    out = capsys.readouterr().out
    assert "the notebook goes on" in out and len(out) < 110_000


EATS = """
import resource
from course.classroom.exercises import check
import course.classroom.problems.p01_gradient_descent
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
def eats(*args):
    held = []
    while True:
        held.append("x" * 2**16)
print(check("gradient_by_hand", eats))
"""


def test_an_answer_that_eats_all_memory_is_told(small_book, monkeypatch):
    monkeypatch.undo()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COURSE_PROGRESS": f"{small_book}/p.json"}
    command = [sys.executable, "-c", EATS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("not right yet: ") and "MemoryError" in done.stdout, done.stderr


def test_an_interrupt_from_outside_stops_the_notebook():
    def interrupted(x):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        check("double", interrupted)
    assert stopped.type is KeyboardInterrupt


def test_an_endless_answer_is_stopped_in_any_thread(monkeypatch):
    monkeypatch.setattr(exercises, "LIMIT_S", 0.2)
    monkeypatch.setattr(limits, "AGAIN_S", 0.1)
    verdicts = []
    other = threading.Thread(target=lambda: verdicts.append(check("double", endless)))
    other.start()
    other.join()
    assert "does not come to an end" in verdicts[0].sentence


def endless(x):
    while True:
        pass


def from_a_cell(source, name):
    """A function as a notebook defines it: its text is known to linecache alone."""
    file = "/tmp/ipykernel_7/1234.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(KeyError, match=r"^there is no exercise 'duoble': did you mean 'double'\?$"):
        check("duoble", double)
    with pytest.raises(KeyError, match="no exercise 'zzz': there are double, nine, repair"):
        hint("zzz")
    with pytest.raises(KeyError, match="there is no exercise 7"):
        solution(7)


def test_hints_come_one_at_a_time_and_end():
    assert repr(hint("double")) == "hint 1 of 2: think of addition."
    assert repr(hint("double")) == "hint 2 of 2: x + x"
    for _ in range(2):
        assert repr(hint("double")) == "no more hints: solution('double') shows an answer"
    assert repr(hint("nine")).startswith("hint 1 of 1")
    assert repr(hint("repair")).startswith("no more hints")


def test_solution_shows_the_source():
    shown = solution("double")
    assert repr(shown) == 'def double(x):\n    """Twice x."""\n    return 2 * x'
    assert shown._repr_markdown_() == f"```python\n{shown!r}\n```"
    assert solution("nine")._repr_markdown_() == repr(solution("nine")) == "9: three rows."


def test_solution_names_the_file_in_the_course(monkeypatch):
    from course.classroom import progress

    changed = find("double")._replace(solution=progress.is_number)
    monkeypatch.setattr("course.classroom.exercises.find", lambda name: changed)
    assert repr(solution("double")).startswith("# course/classroom/progress.py\n\ndef is_number(")


def test_a_prediction_is_compared():
    guess = predict("How many bytes?", 24, unit="bytes")
    assert repr(guess) == "noted: How many bytes? You say 24 bytes"
    assert repr(guess.compare(18)) == "you said 24, it is 18 bytes: 1.3 times too much"


@pytest.mark.parametrize(
    ("said", "measured", "sentence"),
    [
        (18, 18, "you said 18, it is 18: exactly"),
        (3, 24, "you said 3, it is 24: 8 times too little"),
        (1, 25e6, "you said 1, it is 2.5e+07: 25,000,000 times too little"),
        (100, 98, "you said 100, it is 98: within 5 %"),
        (-2, 3, "you said -2, it is 3: the sign is wrong"),
        (-4, -2, "you said -4, it is -2: 2 times too much"),
        (0, 5, "you said 0, it is 5: too little"),
        (5, 0, "you said 5, it is 0: too much"),
        (0, -0.5, "you said 0, it is -0.5: too much"),
        (-5, 0, "you said -5, it is 0: too little"),
        (5, float("inf"), "you said 5, it is inf: too little"),
        (float("inf"), 5, "you said inf, it is 5: too much"),
        (True, True, "you said True, and so it is"),
        (True, False, "you said True, but it is False"),
        ("hangs", "hangs", "you said 'hangs', and so it is"),
        ("hangs", "works", "you said 'hangs', but it is 'works'"),
        ("many", 3, "you said 'many', but it is 3"),
        ("(B)", "b", "you said '(B)', and so it is"),
        ("Zero-bubble", "zero bubble", "you said 'Zero-bubble', and so it is"),
        (3, "3", "you said 3, and so it is"),
        ("<", ">", "you said '<', but it is '>'"),
        ([1, 2], "12", "you said [1, 2], but it is '12'"),
        (3, "many", "you said 3, but it is 'many'"),
        ([1, 2], (1, 2), "you said [1, 2], and so it is"),
        (torch.tensor(3), torch.tensor([3.0]), "you said 3, it is 3: exactly"),
        (np.float32(0.5), np.int64(1), "you said 0.5, it is 1: 2 times too little"),
        (np.arange(2), torch.arange(2), "you said [0, 1], and so it is"),
    ],
)
def test_comparisons(said, measured, sentence):
    assert repr(predict("?", said).compare(measured)) == sentence


@pytest.mark.parametrize(
    ("said", "measured", "question"),
    [(0.75, 83, " (did you mean 75 %?)"), (0.75, 0.9, ""), (1, 83, ""), (75, 83, "")],
)
def test_a_share_is_asked_about_where_per_cent_are_wanted(said, measured, question):
    sentence = repr(predict("?", said, "%").compare(measured))
    assert sentence.partition(" (did")[2] == question.partition(" (did")[2]
    assert "did you" not in repr(predict("?", said, "times").compare(measured))


def test_no_prediction_yet(ledger_file):
    guess = predict("How many?", ...)
    assert repr(guess) == "not predicted yet: How many? Put your guess in place of the dots."
    assert repr(guess.compare(18)) == "not predicted; it is 18"
    assert not ledger_file.exists()


def test_the_first_guess_that_was_compared_stays(ledger_file):
    predict("How many?", 10)
    predict("How many?", 24).compare(18)
    predict("How many?", 18).compare(18)
    record = json.loads(ledger_file.read_text())["predictions"]["How many?"]
    assert (record["said"], record["measured"]) == (24, 18)


def test_tries_and_hints_are_counted_until_right(ledger_file):
    for answer in (same, triple, double, same):
        check("double", answer)
    hint("double")
    records = json.loads(ledger_file.read_text())["exercises"]
    assert records["double"] == {"tries": 3, "hints": 1, "right": True}


def test_a_notebook_shows_long_sentences_in_lines_that_fit():
    question = "How many bytes " + "and how many messages " * 8 + "are sent?"
    shown = pretty(predict(question, ...)).splitlines()
    assert len(shown) > 1 and max(map(len, shown)) <= progress.PAGE.width
    assert " ".join(shown) == repr(predict(question, ...))
    assert pretty(predict("How many?", 3)) == repr(predict("How many?", 3))
