"""Which cells a cell builds on."""

import pytest

from course.classroom.slices import builds_on, names

IMPORTS = "import os\nimport json as text"


def test_what_is_bound_and_looked_up_is_told_apart():
    source = """
from os import path as where
x, (y, z) = given
for turn in range(3):
    x += turn

def double(a, b=z):
    c = a
    return [later(c) for each in others]
"""
    bound, at_once, later = names(source)
    assert bound == {"where", "x", "y", "z", "turn", "double"}
    assert at_once == {"given", "range"}
    assert later == {"later", "others"}


@pytest.mark.parametrize(("cells", "asked", "found"), [
    # a chain, and what does not belong to it
    ([IMPORTS, "a = 1", "unused = 2", "b = a", "c = b", "d = c"], {4}, [0, 1, 3, 4]),
    # the last of two cells that bind a name
    ([IMPORTS, "a = 1", "a = 2", "print(a)"], {3}, [0, 2, 3]),
    # a name that each cell binds before it uses it
    ([IMPORTS, "guess = 1\nprint(guess)", "guess = 2\nprint(guess)"], {2}, [0, 2]),
    # a cell that binds a name anew and needs its old value
    ([IMPORTS, "a = 1", "a = a + 1", "print(a)"], {3}, [0, 1, 2, 3]),
    # a function looks up what is bound below it
    ([IMPORTS, "def f():\n    return n", "n = 3", "f()"], {3}, [0, 1, 2, 3]),
    # and what a function that it calls looks up
    ([IMPORTS, "k = 1", "def g():\n    return k", "def f():\n    return g()", "f()"], {4},
     [0, 1, 2, 3, 4]),
    # what stands behind the cell is of no use to it
    ([IMPORTS, "a = 1", "print(a)", "a = 2"], {2}, [0, 1, 2]),
    # nor what its functions find in their own cell
    ([IMPORTS, "n = 1", "n = 2\ndef f():\n    return n", "f()"], {3}, [0, 2, 3]),
    # two at once
    ([IMPORTS, "a = 1", "b = 2", "c = 3", "print(a)", "print(c)"], {4, 5}, [0, 1, 3, 4, 5]),
])  # fmt: skip
def test_a_cell_gets_those_that_it_builds_on(cells, asked, found):
    assert builds_on(cells, asked) == found
