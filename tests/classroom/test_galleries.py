"""Every exercise of the book rejects its wrong answers, each with its own sentence, and accepts
right ones."""

import pkgutil
from importlib import import_module

import pytest

from course.classroom.problems import catalogue
from tests.classroom import galleries
from tests.classroom.gallery import (
    accepted,
    complete,
    not_done,
    rejected,
    right_answers,
    stubs,
    wrong_answers,
)

FILES = sorted(module.name for module in pkgutil.iter_modules(galleries.__path__))
GALLERIES = [
    gallery for file in FILES for gallery in import_module(f"{galleries.__name__}.{file}").GALLERIES
]


@pytest.mark.parametrize(("name", "answer", "sentence"), wrong_answers(GALLERIES))
def test_a_wrong_answer_gets_its_own_sentence(name, answer, sentence, monkeypatch):
    rejected(name, answer, sentence, monkeypatch)


@pytest.mark.parametrize(("name", "answer"), right_answers(GALLERIES))
def test_a_right_answer_passes(name, answer):
    accepted(name, answer)


@pytest.mark.parametrize(("name", "untouched"), stubs(GALLERIES))
def test_a_stub_is_not_done_yet(name, untouched):
    not_done(name, untouched)


@pytest.mark.parametrize("gallery", GALLERIES, ids=lambda gallery: gallery.name)
def test_the_gallery_is_complete(gallery):
    complete(gallery)


def test_every_exercise_has_a_gallery_in_the_books_order():
    names = [exercise.name for _, exercise in catalogue()]
    assert [gallery.name for gallery in GALLERIES] == names
