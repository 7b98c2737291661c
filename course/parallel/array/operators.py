"""The signs + - * / and their like, for whatever torch's functions work with."""

import torch


class Operators:
    """Signs and attributes of a tensor, each by the function of torch that it stands for."""

    def __add__(self, other):
        return torch.add(self, other)

    __radd__ = __add__

    def __mul__(self, other):
        return torch.mul(self, other)

    __rmul__ = __mul__

    def __sub__(self, other):
        return torch.sub(self, other)

    def __rsub__(self, other):
        return torch.rsub(self, other)

    def __truediv__(self, other):
        return torch.div(self, other)

    def __rtruediv__(self, other):
        return torch.mul(torch.reciprocal(self), other)

    def __pow__(self, power):
        return torch.pow(self, power)

    def __neg__(self):
        return torch.neg(self)

    def __matmul__(self, other):
        return torch.matmul(self, other)

    def __rmatmul__(self, other):
        return torch.matmul(other, self)

    def __gt__(self, other):
        return torch.gt(self, other)

    def __lt__(self, other):
        return torch.lt(self, other)

    def __ge__(self, other):
        return torch.ge(self, other)

    def __le__(self, other):
        return torch.le(self, other)

    def __eq__(self, other):
        return torch.eq(self, other)

    def __ne__(self, other):
        return torch.ne(self, other)

    __hash__ = object.__hash__

    def __bool__(self):
        raise ValueError("an array of many numbers is neither true nor false")

    @property
    def mT(self):  # noqa: N802  as torch has it
        return torch.transpose(self, -2, -1)
