import os

import pytest
import torch

from course.learning.images.faces import lfw_faces, orl_faces

needs_orl = pytest.mark.skipif("COURSE_DATA" not in os.environ, reason="ORL is not staged")


def write_person(folder, person, grey):
    (folder / f"s{person}").mkdir(parents=True)
    for k in range(1, 11):
        pixels = bytes([grey + k]) * (92 * 112)
        (folder / f"s{person}" / f"{k}.pgm").write_bytes(b"P5 92 112 255\n" + pixels)


def test_ten_pictures_of_each_person_come_in_the_order_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    for person in (3, 12):
        write_person(tmp_path / "orl_faces", person, 10 * person)
    faces = orl_faces([12, 3])
    assert faces.images.shape == (20, 112, 92) and faces.images.dtype == torch.float32
    assert faces.persons.tolist() == 10 * [12] + 10 * [3]
    shades = [base + k for base in (120, 30) for k in range(1, 11)]  # 10.pgm comes last
    torch.testing.assert_close(faces.images[:, 5, 7] * 255, torch.tensor(shades).float())


def test_a_person_who_is_not_staged_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    write_person(tmp_path / "orl_faces", 1, 0)
    with pytest.raises(FileNotFoundError, match="orl_faces/s2"):
        orl_faces([1, 2])


@needs_orl
def test_the_faces_of_orl_are_where_their_place_says():
    faces = orl_faces([1, 30])
    assert faces.images.shape == (20, 112, 92)
    assert faces.images.min() >= 0 and faces.images.max() <= 1
    largest = faces.place.sides[1] / 2 + faces.place.jitter
    for centre, length in zip(faces.place.centre, (112, 92), strict=True):
        assert largest <= centre <= length - largest


def test_the_halves_of_lfw_share_no_picture():
    halves = [lfw_faces(half) for half in ("train", "test")]
    for faces in halves:
        assert faces.images.shape == (50, 25, 25) and faces.images.dtype == torch.float32
        assert faces.images.min() >= 0 and faces.images.max() <= 1
    assert torch.cat([faces.persons for faces in halves]).tolist() == list(range(100))
    assert torch.cdist(*(faces.images.flatten(1) for faces in halves)).min() > 1


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: lfw_faces("val"), "'train' or 'test', not 'val'"),
        (lambda: orl_faces([0, 1]), r"from 1 to 40, not \[0, 1\]"),
        (lambda: orl_faces(range(40, 42)), r"from 1 to 40, not \[40, 41\]"),
        (lambda: orl_faces([]), r"from 1 to 40, not \[\]"),
    ],
)
def test_what_cannot_be_taken_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
