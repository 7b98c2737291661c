"""A net has its blocks; text is the book's own."""

import json

import torch
from torch import nn

from course.classroom.letters import letters_net, letters_of
from course.classroom.workbook import BOOK
from course.learning.training.letters import LETTERS


def test_a_net_has_its_blocks_and_scores_every_letter():
    asked = []

    def block(features, heads):
        asked.append((features, heads))
        return nn.Identity()

    net = letters_net(block, features=6, heads=3, blocks=2, length=5)
    assert asked == [(6, 3)] * 2 and len(net) == 4
    assert net(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, LETTERS)


def test_text_is_that_of_the_notebook_and_other_letters_are_the_last():
    text, ids = letters_of("00_start_here.ipynb")
    first = json.loads((BOOK / "notebooks" / "00_start_here.ipynb").read_text())["cells"][0]
    assert text.startswith("".join(first["source"]))
    assert len(ids) == len(text) and ids[0] == ord("#") and ids.max() == LETTERS - 1
    assert not [n for letter, n in zip(text, ids.tolist()) if n not in (ord(letter), LETTERS - 1)]
