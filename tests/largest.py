"""How large what is computed inside becomes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """The largest block of memory, in numbers, that any operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        for each in tree_leaves(returned):
            if isinstance(each, torch.Tensor):
                size = each.untyped_storage().nbytes() // each.element_size()
                self.numbers = max(self.numbers, size)
        return returned
