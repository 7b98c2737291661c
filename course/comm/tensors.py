"""Tensors as bytes: what a message carries, and where it lands."""

import torch

DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}  # as envelopes have them


def describe(dtype, shape) -> str:
    """A tensor in words: `float32 [3, 4]`."""
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def required(x, role: str, rank: int):
    """`x` if a message can carry it.  Raises ValueError that says what it is instead."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"rank {rank}: {role} must be a tensor, not {type(x).__name__} {x!r:.40}")
    if x.layout != torch.strided:
        raise ValueError(f"rank {rank}: {role} must be a dense tensor, not {x.layout}")
    if x.dtype not in CODES:
        raise ValueError(f"rank {rank}: {role} has dtype {x.dtype}, which no message carries")
    return x


def writable(out, rank: int):
    """`out` if a message can land in it: no element of it shares its memory with another."""
    required(out, "the tensor to receive into", rank)
    if _overlaps(out):
        raise ValueError(
            f"rank {rank}: cannot receive into an expanded tensor ({describe(out.dtype, out.shape)}"
            f" with strides {list(out.stride())}): several of its elements share one place"
        )
    return out


def _overlaps(x) -> bool:
    """Whether elements of `x` share their memory, as those of expanded and sliding views do."""
    if x.is_contiguous():
        return False
    reach = 0
    for step, size in sorted((s, n) for s, n in zip(x.stride(), x.shape) if n > 1):
        if step <= reach and x.numel():
            return True
        reach += step * (size - 1)
    return False


def host(x) -> torch.Tensor:
    """The elements of `x` [any shape] on the CPU, flat and contiguous: itself where it can be."""
    return x.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)


def as_bytes(flat) -> memoryview:
    """The memory of a flat contiguous CPU tensor; no copy."""
    if flat.numel() == 0:
        return memoryview(bytearray())
    dense = flat.as_strided(flat.shape, (1,))  # a lone element may come with any stride
    return memoryview(dense.view(torch.uint8).numpy())


def lands_directly(out) -> bool:
    """Whether bytes can be written straight into the memory of `out`."""
    plain = not (out.is_conj() or out.is_neg())
    return plain and out.is_contiguous() and out.device.type == "cpu"
