"""A small transformer that guesses the next letter, and the text of this book for it to read.

Its blocks are made by whoever uses it, `block(features, heads)`: whole ones, or cut.
"""

import json

import torch
from torch import nn

from course.classroom.workbook import BOOK
from course.learning.training.letters import LETTERS, PlacedLetters


def letters_net(block, features=32, heads=4, blocks=4, length=32):
    """A transformer of so many `block(features, heads)`: letters in, scores of the letters that
    may follow out."""
    middle = [block(features, heads) for _ in range(blocks)]
    return nn.Sequential(PlacedLetters(length, features), *middle, nn.Linear(features, LETTERS))


def letters_of(notebook) -> tuple:
    """The Markdown of one of the book's notebooks, and the number of each of its letters."""
    pages = json.loads((BOOK / "notebooks" / notebook).read_text())["cells"]
    text = "\n".join("".join(page["source"]) for page in pages if page["cell_type"] == "markdown")
    return text, torch.tensor([min(ord(letter), LETTERS - 1) for letter in text])
