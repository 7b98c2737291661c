"""What layers that are cut compute and send, by formula.

Of b rows through an m x n matrix on p ranks: 2bmn / p operations a rank forward, twice that
backward; what is sent is the activations, b(m + n) numbers by two all-reduces, and no weight.
"""

from typing import NamedTuple

from course.collectives import cost
from course.collectives.cost import Cost
from course.parallel.tensor.cut import lengths


class LayerCost(NamedTuple):
    """Operations of each rank, and what is sent, on the way there and on the way back."""

    forward_flops: list
    backward_flops: list
    forward: Cost
    backward: Cost

    def then(self, other: "LayerCost") -> "LayerCost":
        """The cost of both, one after the other."""
        flops = [[a + b for a, b in zip(*pair)] for pair in zip(self[:2], other[:2])]
        return LayerCost(*flops, self.forward.then(other.forward),
                         other.backward.then(self.backward))  # fmt: skip


def column_linear(outputs, inputs: int, rows, element_bytes: int, algorithm="ring") -> LayerCost:
    """Of `inputs` features to those at the cuts `outputs`.  `rows`: how many, which all ranks have,
    or their cuts.

    Nothing and an all-reduce back; or an all-gather, and a reduce-scatter back.
    """
    (there, back), count = _pair(len(outputs) - 1, inputs, rows, element_bytes, algorithm)
    return _layer(outputs, inputs, count, there, back)


def row_linear(inputs, outputs: int, rows, element_bytes: int, algorithm="ring") -> LayerCost:
    """Of the features at the cuts `inputs` to `outputs`.  `rows` as of `column_linear`.

    An all-reduce and nothing back; or a reduce-scatter, and an all-gather back.
    """
    (back, there), count = _pair(len(inputs) - 1, outputs, rows, element_bytes, algorithm)
    return _layer(inputs, outputs, count, there, back)


def mlp(hidden, features: int, rows, element_bytes: int, algorithm="ring") -> LayerCost:
    """Of an MLP that is cut at `hidden`, with as many features coming as going."""
    sizes = features, rows, element_bytes, algorithm
    return column_linear(hidden, *sizes).then(row_linear(hidden, *sizes))


def cross_entropy(p: int, rows: int, element_bytes: int, algorithm="ring", numbers=2) -> Cost:
    """An all-reduce of a number a row, and one of `numbers` a row (3 with smoothing)."""
    largest = cost.all_reduces(p, rows, element_bytes)[algorithm]
    return largest.then(cost.all_reduces(p, numbers * rows, element_bytes)[algorithm])


def _layer(cuts, whole, rows, there, back) -> LayerCost:
    flops = [2 * rows * whole * length for length in lengths(cuts)]
    return LayerCost(flops, [2 * each for each in flops], there, back)


def _pair(p, features, rows, element_bytes, algorithm) -> tuple:
    """What a column layer sends there and back, and of how many rows."""
    if isinstance(rows, int):
        nothing = Cost(0, [0] * p, [0] * p, 0)
        reduced = cost.all_reduces(p, rows * features, element_bytes)[algorithm]
        return (nothing, reduced), rows
    parts = [length * features * element_bytes for length in lengths(rows)]
    return (cost.all_gather(parts), cost.reduce_scatter(parts)), rows[-1]
