"""Which optimizers can work on shards: those for which every number is a case of its own."""

import torch
from torch import nn

TRIED = 3  # steps: some optimizers begin with one of another kind


def require_elementwise(make):
    """Raise ValueError unless the optimizer that `make(parameters)` makes changes six numbers in
    the same way whether they are a matrix or three vectors, one of them empty."""
    try:
        with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.enable_grad():
            whole, parts = _tried(make, [(2, 3)]), _tried(make, [(4,), (0,), (2,)])
    except Exception as error:
        raise ValueError(
            f"this optimizer cannot work on shards, which are vectors: {error}"
        ) from error
    if not torch.allclose(whole, parts, rtol=1e-9, atol=0, equal_nan=True):
        raise ValueError(
            "this optimizer needs whole tensors (norms or factors of them), and shards are parts: "
            "take one that is element-wise, as SGD, Adam and AdamW are, or DataParallel"
        )


def _tried(make, shapes):
    """The numbers [6] after some steps, in parameters of these `shapes`."""
    torch.manual_seed(0)
    numbers = torch.linspace(-3, 4, 6, dtype=torch.float64)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    tensors = [nn.Parameter(part.view(shape).clone())
               for part, shape in zip(numbers.split(sizes), shapes)]  # fmt: skip
    optimizer = make(tensors)
    for step in range(1, TRIED + 1):
        gradients = (numbers * step - 1).sin().mul(step).split(sizes)
        for tensor, gradient in zip(tensors, gradients):
            tensor.grad = gradient.view_as(tensor).clone()
        optimizer.step()
    return torch.cat([tensor.detach().flatten() for tensor in tensors])
