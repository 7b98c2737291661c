"""Take faces of known persons from ORL, or the few that ship with scikit-image.

A face is never in two sets: `orl_faces` is asked for persons, `lfw_faces` for a half.
"""

from typing import NamedTuple

import numpy as np
import torch

from course.learning.images.photographs import read
from course.learning.images.staging import staged

FIRST_PERSON, LAST_PERSON = 1, 40
HALVES = {"train": slice(0, 50), "test": slice(50, 100)}


class Place(NamedTuple):
    """Where the face is in a picture, in pixels: a square around `centre`, both give or take."""

    centre: tuple  # down, across
    sides: tuple  # smallest and largest square
    jitter: float  # of the centre, either way


class Faces(NamedTuple):
    """Pictures of faces [count, height, width] in [0, 1], whose they are [count], where they are.

    `persons` are int64; `place` is the same in all pictures, because they are aligned.
    """

    images: torch.Tensor
    persons: torch.Tensor
    place: Place


def orl_faces(persons):
    """Faces of `persons`, numbers from 1 to 40, ten pictures [112, 92] of each, in that order.

    Raises FileNotFoundError where ORL or one of the persons is not staged.
    Source: Samaria and Harter 1994, «Parameterisation of a stochastic model for human face
    identification»; photographs by AT&T Laboratories Cambridge.
    """
    persons = list(persons)
    if not persons or not all(FIRST_PERSON <= person <= LAST_PERSON for person in persons):
        raise ValueError(
            f"persons of ORL are numbers from {FIRST_PERSON} to {LAST_PERSON}, not {persons}"
        )
    folders = [staged("orl_faces", f"s{person}") for person in persons]
    pictures = [[read(folder / f"{k}.pgm") for k in range(1, 11)] for folder in folders]
    return Faces(
        torch.stack(sum(pictures, [])),
        torch.tensor(persons).repeat_interleave(10),
        Place(centre=(60, 46), sides=(71, 79), jitter=2.5),
    )


def lfw_faces(half):
    """The first 50 ("train") or the last 50 ("test") faces [25, 25] of scikit-image's `lfw_subset`.

    It names nobody, so each picture counts as a person: somebody famous may be in both halves.
    Its 100 pictures without a face are left out: their borders are black, which gives them away.
    Source: Huang et al. 2007, «Labeled faces in the wild».
    """
    from skimage.data import lfw_subset

    if half not in HALVES:
        raise ValueError(f"a half of lfw_subset is 'train' or 'test', not {half!r}")
    chosen = HALVES[half]
    images = torch.from_numpy(lfw_subset()[chosen].astype(np.float32))
    persons = torch.arange(chosen.start, chosen.stop)
    return Faces(images, persons, Place(centre=(12.5, 12.5), sides=(22, 25), jitter=1.0))
