"""All exercises of the book: named once, complete, and their solutions can be shown."""

from course.classroom.exercises import solution
from course.classroom.problems import catalogue


def test_names_are_unique_over_the_whole_book():
    names = [exercise.name for _, exercise in catalogue()]
    assert len(names) == len(set(names)) >= 2


def test_exercises_are_complete():
    for book, exercise in catalogue():
        assert book[:2].isdigit() and exercise.task.endswith((".", "?")), exercise.name
        assert 1 <= len(exercise.hints) <= 3 and all(exercise.hints)
        assert len(repr(solution(exercise.name))) > 20
