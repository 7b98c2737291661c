"""What a parameter is while its rank does not hold it: of its shape, and of no use."""

import torch
from torch import nn

TOLD = {"numel", "nelement", "dim", "size", "stride", "element_size", "is_floating_point",
        "is_complex", "requires_grad_", "register_hook", "register_post_accumulate_grad_hook",
        "untyped_storage", "__get__", "__set__", "__len__"}  # fmt: skip


class Freed(nn.Parameter):
    """A parameter without values.  Whoever computes with it gets its `sentence` as RuntimeError."""

    sentence = ""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ not in TOLD:
            raise RuntimeError(f"{cls.sentence} ({function.__name__})")
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    def __deepcopy__(self, memo):
        raise RuntimeError(f"{self.sentence} (deepcopy)")

    def __reduce_ex__(self, protocol):
        raise RuntimeError(f"{self.sentence} (pickle)")


def without_values(parameter):
    """A tensor of its shape and dtype in the memory of one number: nan, if there is such a one."""
    number = float("nan") if parameter.is_floating_point() or parameter.is_complex() else 0
    return parameter.detach().new_full((), number).expand(parameter.shape)
