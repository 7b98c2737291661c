"""Each sign is the function of torch that it stands for."""

import pytest

from course.parallel.array import part
from course.worlds import run
from tests.parallel.array.test_fetch import drawn, off

SIGNS = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "/": lambda x, y: x / y, "**": lambda x, y: x**2, "neg": lambda x, y: -x,
    "@": lambda x, y: x @ y.mT, ">": lambda x, y: x > y, "<": lambda x, y: x < y,
    ">=": lambda x, y: x >= y, "<=": lambda x, y: x <= y,
    "+ number": lambda x, y: 1 + x, "- number": lambda x, y: 1 - x, "* number": lambda x, y: 2 * x,
    "/ number": lambda x, y: 1 / x, "@ tensor": lambda x, y: drawn(2, 3) @ x,
}  # fmt: skip


def signed(comm, sign):
    x, y = drawn(4, 3, 3, seed=1), drawn(4, 3, 3, seed=2)
    grid = comm.size, 1, 1
    mine = SIGNS[sign](part(comm, x, grid), part(comm, y, grid)).gather()
    return off(mine.double() - SIGNS[sign](x, y).double())


@pytest.mark.parametrize("sign", SIGNS)
def test_signs(sign):
    assert max(run(signed, 2, sign, timeout=5)) < 1e-12
