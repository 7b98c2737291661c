"""A batch is cut into micro-batches row by row."""

import pytest
import torch

from course.parallel.pipeline.batches import cut, rows_of, sizes_of


def test_rows_are_shared_out():
    assert sizes_of(11, None, 4, 0) == [3, 3, 3, 2]
    assert sizes_of(2, None, 4, 0) == [1, 1, 0, 0]
    assert sizes_of(None, (2, 5), 2, 0) == [2, 5]
    assert sizes_of(7, (2, 5), 2, 0) == [2, 5]


def test_a_structure_is_cut_at_its_rows():
    x = torch.arange(10).view(5, 2)
    each = cut(((x, torch.tensor(3)), {"k": [x[:, 0], None, "text"]}), [2, 0, 3])
    assert [part[0][0].tolist() for part in each] == [x[:2].tolist(), [], x[2:].tolist()]
    assert [part[1]["k"][0].tolist() for part in each] == [[0, 2], [], [4, 6, 8]]
    assert all(part[0][1] == 3 and part[1]["k"][1:] == [None, "text"] for part in each)
    assert rows_of((x, [x[:, 0]], torch.tensor(3)), 0) == 5
    assert rows_of((None, 3), 0) is None


@pytest.mark.parametrize("call, sentence", [
    (lambda: rows_of([torch.ones(2), torch.ones(3)], 4), "rank 4: .* number of rows, not 2, 3"),
    (lambda: sizes_of(None, None, 2, 4), "rank 4: of how many rows is the batch"),
    (lambda: sizes_of(4, [1, -1, 4], 3, 4), "rank 4: the schedule has 3 micro-batches, and sizes"),
    (lambda: sizes_of(4, [1.5, 2.5], 2, 4), r"the schedule has 2 micro-.* sizes are \[1.5, 2.5\]"),
    (lambda: sizes_of(4, [1, 2], 2, 4), r"rank 4: a batch of 4 rows is not 1 \+ 2"),
])  # fmt: skip
def test_rows_that_do_not_agree_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
