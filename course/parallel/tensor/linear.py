"""Linear layers cut by their outputs or by their inputs, and the two of them in a row.

            rank 0   rank 1
  x  ----+---> A0 --> y0 --> B0 ---+     f copies x, and adds up its slopes on the way back;
         f                         g     g adds up what ranks have made of their parts, and copies
         +---> A1 --> y1 --> B1 ---+     the slope back: an all-reduce there, one back

Of b rows an m x n matrix computes 2bmn; moved are b(m + n) numbers, whatever the number of ranks.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3.
"""

from torch import nn
from torch.nn import functional

from course.parallel.array.replicated import copied, summed
from course.parallel.tensor.cut import Cut, CutLayer, checked_cuts, lengths, required_layer
from course.parallel.tensor.sequence import gathered, scattered


class ColumnLinear(CutLayer):
    """The outputs cuts[r] to cuts[r + 1] of `linear` on rank r (None: cut evenly), of each of
    several `blocks` of outputs.

    `linear` is equal on all ranks, and stays as it is.  Raises ValueError for what is not one.
    """

    def __init__(self, comm, linear, cuts=None, *, blocks=1, algorithm="auto"):
        super().__init__(comm, algorithm)
        outputs = required_layer(comm, linear, nn.Linear).out_features
        if outputs % blocks:
            raise ValueError(f"rank {comm.rank}: {outputs} outputs are not {blocks} equal blocks")
        self.cuts = checked_cuts(comm, outputs // blocks, cuts)
        self.keep("weight", linear.weight, Cut(0, self.cuts, blocks))
        self.keep("bias", linear.bias, Cut(0, self.cuts, blocks))

    def forward(self, x, cuts=None):
        """This rank's outputs [..., rows, its own] of x [..., rows, inputs], equal on all ranks; or
        of rows that are cut at `cuts`, of which x [..., its own, inputs] has this rank's.

        Cost: nothing, and an all-reduce of x back; or an all-gather of all rows, and a
        reduce-scatter back.
        """
        x = copied(self.comm, x, self.algorithm) if cuts is None else gathered(self.comm, x, cuts)
        return functional.linear(x, self.weight, self.bias)


class RowLinear(CutLayer):
    """`linear` of the inputs cuts[r] to cuts[r + 1] on rank r (None: cut evenly).  All ranks have
    the whole bias, and it is added to the sum: once.

    `linear` is equal on all ranks, and stays as it is.  Raises ValueError for what is not one.
    """

    def __init__(self, comm, linear, cuts=None, *, algorithm="auto"):
        super().__init__(comm, algorithm)
        inputs = required_layer(comm, linear, nn.Linear).in_features
        self.cuts = checked_cuts(comm, inputs, cuts)
        self.keep("weight", linear.weight, Cut(1, self.cuts))
        self.keep("bias", linear.bias)

    def forward(self, x, cuts=None):
        """The outputs [..., rows, outputs] of x [..., rows, this rank's inputs], on all ranks; or
        this rank's rows of them [..., its own, outputs], cut at `cuts`.

        Cost: an all-reduce of the outputs, and nothing back; or a reduce-scatter of them, and an
        all-gather back.  Raises ValueError for other inputs than this rank's.
        """
        mine = lengths(self.cuts)[self.comm.rank]
        if x.shape[-1] != mine:
            raise ValueError(f"rank {self.comm.rank}: a row layer takes its part of the inputs, "
                             f"{mine} of {self.cuts[-1]}: not {x.shape[-1]}")  # fmt: skip
        y, bias = functional.linear(x, self.weight), self.bias
        if cuts is None:
            y = summed(self.comm, y, self.algorithm)
        else:
            y = scattered(self.comm, y, cuts)
            bias = None if bias is None else copied(self.comm, bias, self.algorithm)
        return y if bias is None else y + bias.to(y.dtype)  # autocast has made them differ


class MLP(nn.Module):
    """down(activation(up(x))), hidden features cut over ranks: `up` by its outputs, `down` by its
    inputs.

    Cost: an all-reduce forward and one backward; where rows are cut, an all-gather and a
    reduce-scatter each way.  Raises ValueError where the two do not fit.
    """

    def __init__(self, comm, up, down, activation=functional.gelu, cuts=None, *,
                 algorithm="auto"):  # fmt: skip
        super().__init__()
        self.up = ColumnLinear(comm, up, cuts, algorithm=algorithm)
        self.down = RowLinear(comm, down, cuts, algorithm=algorithm)
        self.activation = activation
        if self.up.cuts != self.down.cuts:
            raise ValueError(f"rank {comm.rank}: {up.out_features} hidden features come up, and "
                             f"{down.in_features} go down")  # fmt: skip

    def forward(self, x, cuts=None):
        """Of x [..., rows, inputs], all of them or those of this rank: as many [..., outputs]."""
        return self.down(self.activation(self.up(x, cuts)), cuts)
