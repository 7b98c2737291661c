"""Galleries of answers: each wrong one is rejected with its own sentence, each right one passes.

A test file lists its `Gallery`s, one for each exercise of a notebook; `gallery_tests` makes the
tests.
"""

import ast
import inspect
import itertools
import linecache
import random
import signal
import sys
import textwrap
import warnings
from typing import Any, NamedTuple

import numpy
import pytest
import torch

from course.classroom import answers, exercises, limits
from course.classroom.exercises import check, find, listing, solution
from course.classroom.process_state import SETTINGS

CELLS = itertools.count(1)
LIMITS_S = (0.5, 1, 2, 4, 8, 16, 32, 60)  # how long it takes to get as far as the answer
DEADLOCK = "the ranks wait for one another"


class Gallery(NamedTuple):
    """Answers to one exercise: sentence -> wrong answer, right ones, and its untouched stub."""

    name: str
    stub: Any
    right: list
    wrong: dict[str, Any]


def gallery_tests(galleries) -> tuple:
    """Tests of each wrong answer, each right one, each stub, each gallery, and of what no answer
    may do to any check."""

    def wrong(name, answer, sentence, monkeypatch):
        rejected(name, answer, sentence, monkeypatch)

    def right(name, answer):
        accepted(name, answer)

    def stub(name, untouched):
        not_done(name, untouched)

    def gallery(gallery):
        complete(gallery)

    def endless(name, monkeypatch):
        stopped(name, monkeypatch)

    def leaving(name, answer):
        survived(name, answer)

    several = pytest.mark.parametrize
    functions = several("name", [g.name for g in galleries if inspect.isfunction(g.right[0])])
    return (
        several(("name", "answer", "sentence"), wrong_answers(galleries))(wrong),
        several(("name", "answer"), right_answers(galleries))(right),
        several(("name", "untouched"), stubs(galleries))(stub),
        several("gallery", galleries, ids=lambda gallery: gallery.name)(gallery),
        functions(endless),
        functions(several("answer", [leaves, raises_the_worst])(leaving)),
    )


def wrong_answers(galleries) -> list:
    """Parameters (name, answer, sentence) of all wrong answers."""
    return [
        pytest.param(g.name, answer, sentence, id=f"{g.name}-{label(answer)}")
        for g in galleries
        for sentence, answer in g.wrong.items()
    ]


def right_answers(galleries) -> list:
    """Parameters (name, answer) of all right answers."""
    return [
        pytest.param(g.name, answer, id=f"{g.name}-{label(answer)}")
        for g in galleries
        for answer in g.right
    ]


def stubs(galleries) -> list:
    """Parameters (name, stub) of all stubs."""
    return [pytest.param(g.name, g.stub, id=g.name) for g in galleries]


def checked(name, answer):
    """The verdict on an answer.  Asserts that the notebook is as it was before."""
    before = state()
    verdict = check(name, in_a_cell(answer))
    assert state() == before
    return verdict


def state() -> list:
    """What `kept` puts back."""
    numbers = torch.get_rng_state().tolist(), repr(numpy.random.get_state()), random.getstate()
    return [get() for get, _ in SETTINGS] + [numbers, sys.stdout, list(warnings.filters)]


def rejected(name, answer, sentence, monkeypatch):
    """Assert that `answer` is wrong with a sentence that holds `sentence`."""
    if sentence.startswith(DEADLOCK):  # what hangs for a second hangs for ever
        monkeypatch.setattr(answers, "PATIENCE_S", 1.0)
    verdict = checked(name, answer)
    assert verdict.right is False, verdict
    assert sentence in verdict.sentence
    assert "could not be checked" not in verdict.sentence


def accepted(name, answer):
    """Assert that `answer` is right."""
    verdict = checked(name, answer)
    assert verdict.right is True, verdict


def not_done(name, stub):
    """Assert that `stub`, and the dots, are neither right nor wrong."""
    for untouched in (in_a_cell(stub), ...):
        assert repr(check(name, untouched)) == f"not done yet: {find(name).task}"


def complete(gallery: Gallery):
    """Assert three wrong answers and more, each with a sentence of its own, and a right one that
    is not the solution."""
    sentences = list(gallery.wrong)
    assert len(sentences) >= 3
    assert not any(a in b for a, b in itertools.permutations(sentences, 2))
    shown = repr(solution(gallery.name))
    own = [a for a in gallery.right if not inspect.isfunction(a) or listing(a) not in shown]
    assert own
    assert len(find(gallery.name).hints) <= 3


def spins(*args, **options):
    while True:
        signal.pause()  # as endless, and leaves the cores to other tests


def leaves(*args, **options):
    raise SystemExit(3)


def raises_the_worst(*args, **options):
    raise BaseException("worse than an error")


def stopped(name, monkeypatch):
    """Assert that an answer that does not come to an end is stopped, with its line."""
    monkeypatch.setattr(limits, "AGAIN_S", 0.2)
    for limit in LIMITS_S:
        for module in (exercises, answers):
            monkeypatch.setattr(module, "LIMIT_S", limit)
        monkeypatch.setattr(answers, "PATIENCE_S", 2 * limit)  # of ranks that wait for late ones
        verdict = check(name, in_a_cell(spins))
        assert verdict.right is False
        assert verdict.sentence.startswith("your function does not come to an end"), verdict
        if "spins, line" in verdict.sentence:
            return
    pytest.fail(verdict.sentence)


def survived(name, answer):
    """Assert that nothing that an answer raises stops the notebook."""
    verdict = checked(name, answer)
    assert verdict.right is False
    assert verdict.sentence.startswith("your function stopped")
    assert f"{answer.__name__}, line 2" in verdict.sentence


def label(answer) -> str:
    return getattr(answer, "__name__", repr(answer)[:20])


def in_a_cell(answer):
    """A function as a notebook's cell would define it: in `__main__`, its text in no file."""
    if not inspect.isfunction(answer):
        return answer
    source = textwrap.dedent(inspect.getsource(answer))
    if not isinstance(ast.parse(source).body[0], ast.FunctionDef):
        return answer
    file = f"/tmp/ipykernel_1/{next(CELLS)}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {**answer.__globals__, "__name__": "__main__"}
    exec(compile(source, file, "exec"), scope)
    return scope[answer.__name__]
