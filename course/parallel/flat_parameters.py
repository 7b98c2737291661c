"""All that a model learns as one flat tensor, to be averaged and sent in one piece."""

import hashlib
from itertools import zip_longest

import torch

from course.collectives import all_gather, all_reduce, broadcast
from course.comm.tensors import describe


class FlatParameters:
    """The parameters of `module` that are trained, from now on parts of one tensor, `flat`
    [elements]: what happens to it happens to them.

    Raises ValueError for parameters of more than one dtype or device, or for none.
    """

    def __init__(self, module):
        self.module = module
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        kinds = sorted({f"{p.dtype} on {p.device}" for p in self.parameters})
        if len(kinds) != 1:
            told = " and ".join(kinds).replace("torch.", "") or "none"
            raise ValueError(f"weights in one tensor are of one dtype and device, not {told}")
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        for p, part in zip(self.parameters, self._parts(self.flat)):
            p.data = part.view(p.shape)

    def add_gradient(self, out, factor):
        """out [elements] += factor times the gradient; a parameter without one counts as zero."""
        for p, part in zip(self.parameters, self._parts(out)):
            if p.grad is not None:
                part.view(p.shape).add_(p.grad, alpha=factor)

    def clear_gradients(self):
        """No parameter has a gradient."""
        for p in self.parameters:
            p.grad = None

    def required_finite(self, rank: int):
        """Raises FloatingPointError that names a parameter whose gradient is not finite."""
        named = {p: name for name, p in self.module.named_parameters()}
        for p in self.parameters:
            if p.grad is None or p.grad.is_meta:
                continue
            gradient = p.grad.coalesce().values() if p.grad.is_sparse else p.grad
            if not gradient.isfinite().all():
                name = f"{named[p]} on rank {rank}"
                raise FloatingPointError(f"gradients must be finite; this one is not: {name}")

    def required_in_place(self, rank: int):
        """Raises RuntimeError unless what the module trains is still part of `flat`."""
        ours = dict(zip(self.parameters, self._parts(self.flat)))
        named = {p: name for name, p in self.module.named_parameters()}
        for p in [p for p in named if p.requires_grad] + self.parameters:
            if p not in named or p not in ours or not _same_memory(p, ours[p]):
                name = named.get(p, "a parameter that the module no longer has")
                raise RuntimeError(
                    f"rank {rank}: {name} is not trained: cast, move, assign or unfreeze "
                    "parameters before their module is given away, not afterwards"
                )

    def _parts(self, flat):
        return flat.split([p.numel() for p in self.parameters])


def _same_memory(p, part) -> bool:
    """Whether a parameter has the elements of `part` [elements], and not only equal ones."""
    return p.dtype == part.dtype and p.device == part.device and p.data_ptr() == part.data_ptr()


def broadcast_module(comm, module, root: int = 0):
    """Make `module` on all ranks that of rank `root`: what is trained, what is frozen, buffers.

    Cost: a broadcast of each, and an all-reduce of 32 bytes.  Raises ValueError
    where the ranks' models differ, as `check_same_model` has it.
    """
    check_same_model(comm, module)
    for tensor in (*module.parameters(), *module.buffers()):
        broadcast(comm, tensor.detach(), root)


def check_same_model(comm, module):
    """All ranks have the same parameters and buffers: names, dtypes, shapes, order, and what of
    them is frozen.

    Cost: an all-reduce of 32 bytes; two all-gathers where something differs, which raises
    ValueError that says which tensor does, on two ranks.
    """
    told = [_told(name, x, "" if x.requires_grad else ", frozen")
            for name, x in module.named_parameters()]  # fmt: skip
    told += [_told(name, x) for name, x in module.named_buffers()]
    if _same_everywhere(comm, "\n".join(told)):
        return
    number, here, there, rank = _difference(comm, told)
    raise ValueError(
        f"models must be equal on all ranks: tensor {number} is {here} on rank {comm.rank}, "
        f"and {there} on rank {rank}"
    )


def _difference(comm, told):
    """The first line of `told` that another rank has otherwise: its number, both, and that rank."""
    mine = list("\n".join(told).encode())
    with torch.device("cpu"):
        lengths = [torch.empty(1, dtype=torch.long) for _ in range(comm.size)]
        all_gather(comm, lengths, torch.tensor([len(mine)]))
        texts = [torch.empty(length, dtype=torch.uint8) for length in lengths]
        all_gather(comm, texts, torch.tensor(mine, dtype=torch.uint8))
    lines = [bytes(text.tolist()).decode().splitlines() for text in texts]
    return next(
        (number, *pair, rank)
        for rank, theirs in enumerate(lines)
        for number, pair in enumerate(zip_longest(told, theirs, fillvalue="missing"))
        if len({*pair}) > 1
    )


def _same_everywhere(comm, text: str) -> bool:
    """Whether all ranks have this text: then the most and the least of its digests are one."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    digest = torch.frombuffer(bytearray(digest), dtype=torch.long)
    bounds = torch.cat([digest, ~digest])  # the greatest of ~x is that of the least x
    all_reduce(comm, bounds, "max", algorithm="recursive_doubling")
    return torch.equal(bounds[:2], ~bounds[2:])


def _told(name, x, frozen="") -> str:
    return f"{name} ({describe(x.dtype, x.shape)}{frozen})"
