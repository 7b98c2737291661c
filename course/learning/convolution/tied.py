"""Convolve images with filters by the definition, as one matrix product, or through frequencies.

`direct`, `gemm` and `fft` take the same arguments, return the same numbers and differ in cost,
which `multiplications` and `fft_multiplications` count; `winograd.py` has a fourth way. As usual in
deep learning, filters are not flipped: strictly, it is a correlation. Autograd finds the gradients.
"""

import itertools
import math

import torch
from torch.nn.functional import pad


def direct(images, filters, *, stride=1, padding=0, dilation=1, groups=1):
    """The definition: images [batch, channels, height, width] -> [batch, out, rows, columns].

    filters [out, channels / groups, filter height, filter width]. Each tap of the filter sees the
    whole image, shifted; the result is the weighted sum of these. `padding` zeros go around the
    image, `dilation` is the distance of two taps, output group i sees channel group i alone.
    Raises ValueError, as all methods do, for what does not fit. Source: Dumoulin and Visin 2016.
    """
    sizes = checked_sizes(images, filters, stride, padding, dilation, groups)
    weights = filters.unflatten(0, (groups, -1)).flatten(3)  # [groups, out, channels, taps]
    result = 0
    for tap, seen in enumerate(
        _shifts(images, filters.shape[2:], sizes, stride, padding, dilation)
    ):
        pixels = seen.unflatten(1, (groups, -1)).flatten(3)  # [batch, groups, channels, places]
        result = result + weights[..., tap] @ pixels
    return result.flatten(1, 2).unflatten(2, sizes)


def gemm(images, filters, *, stride=1, padding=0, dilation=1, groups=1):
    """The same from `columns`, which leave one matrix product per image and group.

    The columns take up to filter height x filter width times the memory of the images.
    Source: Chellapilla, Puri and Simard 2006, «High performance convolutional neural networks».
    """
    sizes = checked_sizes(images, filters, stride, padding, dilation, groups)
    seen = columns(images, filters.shape[2:], stride=stride, padding=padding, dilation=dilation)
    weights = filters.flatten(1).unflatten(0, (groups, -1))  # [groups, out, channels * taps]
    result = weights @ seen.unflatten(1, (groups, -1))  # [batch, groups, out, places]
    return result.flatten(1, 2).unflatten(2, sizes)


def columns(images, filter_size, *, stride=1, padding=0, dilation=1, out=None):
    """What a filter (height, width) sees at each place: [batch, channels * taps, places], a copy.

    A column for each place: its channels one after another, the taps of a channel row by row.
    This is im2col of the libraries. `out`, such a table, is written into and returned: memory that
    is asked for anew costs more than the copy. Source: Chellapilla, Puri and Simard 2006.
    """
    sizes = _output_sizes(images, filter_size, stride, padding, dilation)
    shifts = list(_shifts(images, filter_size, sizes, stride, padding, dilation))
    shape = len(images), images.shape[1] * len(shifts), math.prod(sizes)
    if out is not None and out.shape != shape:
        raise ValueError(f"these columns are {list(shape)}, and out is {list(out.shape)}")
    room = None if out is None else out.view(*images.shape[:2], len(shifts), *sizes)
    return torch.stack(shifts, dim=2, out=room).flatten(3).flatten(1, 2)


def fft(images, filters, *, stride=1, padding=0, dilation=1, groups=1):
    """The same by frequencies, where a correlation is a product with the conjugate of the filter.

    Every image and filter is transformed once, however often it is used; a larger filter and its
    dilation cost nothing more. Places that a stride skips are computed and dropped. One NaN in an
    image spoils all its outputs. float32 and float64 only.
    Source: Mathieu, Henaff and LeCun 2013, arXiv 1312.5851.
    """
    rows, across = checked_sizes(images, filters, stride, padding, dilation, groups)
    if images.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"fft needs float32 or float64, not {images.dtype}")
    # Frequencies wrap around, but no place that is kept sees beyond the padded image.
    size = _transform_size(images, padding)
    pictures = torch.fft.rfft2(pad(images, [padding] * 4), size).unflatten(1, (groups, -1))
    masks = torch.fft.rfft2(_dilated(filters, dilation), size).conj().unflatten(0, (groups, -1))
    dense = torch.fft.irfft2(_sum_over_channels(pictures, masks).flatten(1, 2), size)
    return dense[..., ::stride, ::stride][..., :rows, :across]


def multiplications(images, filters, *, stride=1, padding=0, dilation=1, groups=1):
    """Multiplications of `direct`, and of `gemm`: one per output, channel it sees and tap."""
    sizes = checked_sizes(images, filters, stride, padding, dilation, groups)
    return len(images) * math.prod(sizes) * filters.numel()


def fft_multiplications(images, filters, *, padding=0, groups=1):
    """About the multiplications of `fft`, whatever the filter's size, dilation and stride.

    A complex one is 4 real ones; n real pixels have n / 2 frequencies, and n log2 n
    multiplications transform them. Source: Mathieu, Henaff and LeCun 2013.
    """
    checked_sizes(images, filters, 1, padding, 1, groups)
    batch, out = len(images), len(filters)
    pixels = math.prod(_transform_size(images, padding))
    planes = math.prod(images.shape[:2]) + math.prod(filters.shape[:2]) + batch * out
    products = batch * math.prod(filters.shape[:2])
    return round(planes * pixels * math.log2(pixels) + 4 * products * pixels / 2)


def output_size(size, filter_size, stride=1, padding=0, dilation=1):
    """Places of a filter of `filter_size` taps along an axis of `size` pixels.

    Raises ValueError where the filter is longer than the padded axis.
    """
    for name, value, least in (
        *(("the size of an image", size, 1), ("the size of a filter", filter_size, 1)),
        *(("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)),
    ):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value}")
    span = dilation * (filter_size - 1) + 1
    if span > size + 2 * padding:
        raise ValueError(
            f"a filter over {span} pixels does not fit on {size} pixels and {padding} around them"
        )
    return (size + 2 * padding - span) // stride + 1


def checked_sizes(images, filters, stride, padding, dilation, groups):
    """(rows, columns) of the output of a convolution; ValueError where its arguments disagree."""
    if filters.dim() != 4 or 0 in filters.shape:
        raise ValueError(
            f"filters must be [out, channels / groups, height, width], not {list(filters.shape)}"
        )
    sizes = _output_sizes(images, filters.shape[2:], stride, padding, dilation)
    if not images.is_floating_point() or images.dtype != filters.dtype:
        raise ValueError(
            f"images and filters must be of one floating type, not {images.dtype}, {filters.dtype}"
        )
    channels, (out, depth) = images.shape[1], filters.shape[:2]
    if not isinstance(groups, int) or groups < 1 or channels % groups or out % groups:
        raise ValueError(f"{channels} channels and {out} filters cannot be cut in {groups} groups")
    if depth * groups != channels:
        raise ValueError(
            f"filters over {depth} channels in {groups} groups do not fit {channels} channels"
        )
    return sizes


def fft_size(n):
    """The least size of at least n without prime factors above 5: such transforms are quick."""
    return next(size for size in itertools.count(n) if 30 ** size.bit_length() % size == 0)


def _shifts(images, filter_size, sizes, stride, padding, dilation):
    """What each tap sees, row by row: views [batch, channels, *sizes] of the padded images."""
    padded = pad(images, [padding] * 4)
    last_row, last_column = [stride * (size - 1) for size in sizes]
    for i, j in itertools.product(*map(range, filter_size)):
        down, right = i * dilation, j * dilation
        yield padded[
            ..., down : down + last_row + 1 : stride, right : right + last_column + 1 : stride
        ]


def _output_sizes(images, filter_size, stride, padding, dilation):
    if images.dim() != 4 or 0 in images.shape:
        raise ValueError(
            f"images must be [batch, channels, height, width], none 0, not {list(images.shape)}"
        )
    return tuple(
        output_size(size, taps, stride, padding, dilation)
        for size, taps in zip(images.shape[2:], filter_size, strict=True)
    )


def _transform_size(images, padding):
    return [fft_size(size + 2 * padding) for size in images.shape[2:]]


def _dilated(filters, dilation):
    height, width = [dilation * (taps - 1) + 1 for taps in filters.shape[2:]]
    spread = filters.new_zeros(*filters.shape[:2], height, width)
    spread[..., ::dilation, ::dilation] = filters
    return spread


def _sum_over_channels(pictures, masks):
    """pictures [batch, groups, channels, ...], masks [groups, out, channels, ...], multiplied."""
    total = pictures[:, :, None, 0] * masks[:, :, 0]
    for channel in range(1, masks.shape[2]):  # a matrix product per frequency is no faster
        total.addcmul_(pictures[:, :, None, channel], masks[:, :, channel])
    return total
