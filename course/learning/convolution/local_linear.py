"""Give each window of an image weights of its own, apply them, and send answers back to pixels.

`local_linear` is W x and `local_linear_transposed` is W^T z, where no two windows share a weight;
`windows` counts the windows. Gradients of any order, all in small dense matrix products: no pixel
is copied once per window that sees it, so memory is that of input, weights and output.
"""

import itertools

import torch
from torch.autograd import Function
from torch.overrides import handle_torch_function, has_torch_function


def windows(size, field, stride=1):
    """How many windows of `field` pixels, `stride` apart, fit on an axis of `size` pixels.

    Pixels behind the last window that fits are seen by none.
    Raises ValueError where not even one fits.
    """
    for name, value in (("size", size), ("field", field), ("stride", stride)):
        check_positive(name, value)
    if field > size:
        raise ValueError(f"a window of {field} pixels does not fit on an axis of {size}")
    return (size - field) // stride + 1


def local_linear(x, weights, *, stride=1, block=1):
    """W x: x [batch, channels, height, width] -> [batch, maps, rows * block, columns * block].

    weights [rows, columns, maps * block * block, field, field, channels]: a dense matrix for each
    window; a block x block square of neighbouring answers of each map comes from one window.
    Costs 2 * batch * weights flop, and twice that for both gradients. The batch is the fastest
    axis of the result's memory, as it is inside: a layer that follows need not turn it around.
    Raises ValueError for what does not fit. Source: Coates et al. 2013.
    """
    if has_torch_function((x, weights)):  # what is not a tensor knows itself what this is for it
        return handle_torch_function(
            local_linear, (x, weights), x, weights, stride=stride, block=block
        )
    _check_weights(weights, block)
    check_input(x, weights.shape[5], weights.dtype)
    check_windows(weights, x.shape[2:], stride)
    pixels, shape = _batch_last(x).flatten(1, 2), (*weights.shape[:3], len(x))
    answers = _Derivative.apply(ANSWERS, weights.flatten(4), pixels, shape, stride)
    return _as_maps(answers, block)


def local_linear_transposed(z, weights, size, *, stride=1, block=1):
    """W^T z: z [batch, maps, rows * block, columns * block] -> [batch, channels, *size].

    Each answer adds the weights it came from, times itself, to the pixels that it saw; `size`
    is (height, width), and pixels that no window saw become 0. Costs what `local_linear` costs.
    """
    _check_weights(weights, block)
    rows, columns, outputs, _, _, channels = weights.shape
    check_input(z, outputs // block**2, weights.dtype, (rows * block, columns * block))
    check_windows(weights, size, stride)
    shape = (size[0], size[1] * channels, len(z))
    answers = _as_answers(z, block)
    pixels = _Derivative.apply(PIXELS, answers, weights.flatten(4), shape, stride)
    return pixels.unflatten(1, (size[1], channels)).permute(3, 2, 0, 1)


# W x, W^T z and z x^T are the three derivatives of one number, z^T W x, so the gradients of each
# are the other two. Inside, the batch comes last and a line of pixels is one matrix:
#   pixels [height, width * channels, batch]    answers [rows, columns, outputs, batch]
#   weights [rows, columns, outputs, field, field * channels]
# A window is then `field` blocks of memory, and each is multiplied where it lies.


class _Derivative(Function):
    """Of z^T W x in one of z, W and x, number `wanted`, where the other two are given in order."""

    @staticmethod
    def forward(ctx, wanted, first, second, shape, stride):
        ctx.save_for_backward(first, second)
        ctx.wanted, ctx.stride = wanted, stride
        compute = _on_meta(wanted) if first.is_meta else DERIVATIVES[wanted]
        return compute(first, second, shape, stride)

    @staticmethod
    def backward(ctx, slope):
        factors = list(ctx.saved_tensors)
        factors.insert(ctx.wanted, slope.contiguous())
        gradients = [None] * len(ctx.needs_input_grad)
        others = [number for number in range(3) if number != ctx.wanted]
        for place, number in enumerate(others, start=1):
            if ctx.needs_input_grad[place]:
                rest, shape = factors[:number] + factors[number + 1 :], factors[number].shape
                gradients[place] = _Derivative.apply(number, *rest, shape, ctx.stride)
        return tuple(gradients)


def _answers(weights, pixels, shape, stride):
    """W x."""
    answers = pixels.new_empty(shape)
    for row, line, seen in _lines(pixels, weights.shape, stride):
        answers[row].baddbmm_(weights[row, :, :, line], seen, beta=min(line, 1))
    return answers


def _weights(answers, pixels, shape, stride):
    """z x^T."""
    weights = answers.new_empty(shape)
    for row, line, seen in _lines(pixels, shape, stride):
        torch.bmm(answers[row], seen.mT, out=weights[row, :, :, line])
    return weights


def _pixels(answers, weights, shape, stride):
    """W^T z."""
    pixels = answers.new_zeros(shape)
    matrices = weights.permute(0, 1, 3, 4, 2)  # [rows, columns, field, reach, outputs]
    for row, column, line, seen in disjoint(pixels, weights.shape, stride):
        sent = answers[row, column].expand(len(seen), -1, -1)
        seen.baddbmm_(matrices[row, column, line], sent)
    return pixels


def _on_meta(wanted):
    """The same without values: one product of as many flop, of windows that lie apart."""

    def shaped(first, second, shape, stride):
        tensors = [first, second]
        tensors.insert(wanted, first.new_empty(shape))
        rows, columns, outputs, batch = tensors[0].shape
        seen_by_one = tensors[1].shape[3:].numel()
        shapes = (outputs, batch), (outputs, seen_by_one), (seen_by_one, batch)
        a, w, seen = (first.new_empty(rows * columns, *each) for each in shapes)
        torch.bmm(*((w, seen), (a, seen.mT), (w.mT, a))[wanted])
        return tensors[wanted]

    return shaped


ANSWERS, WEIGHTS, PIXELS = range(3)
DERIVATIVES = (_answers, _weights, _pixels)


def _lines(pixels, shape, stride):
    """(row of windows, line of them, what they see there): pixels [columns, reach, batch]."""
    rows, _, _, field, reach = shape
    for row in range(rows):
        for line in range(field):
            step = stride * reach // field
            yield row, line, pixels[row * stride + line].unfold(0, reach, step).mT


def disjoint(pixels, shape, stride):
    """(row, column, line, what is seen there): portions in which no pixel is seen twice.

    Either all lines of one window or one line of windows too far apart to overlap, whichever
    makes fewer portions, so that a product can be added to pixels [some, reach, batch] in place.
    """
    rows, columns, _, field, reach = shape
    step, apart = stride * reach // field, -(-field // stride)
    for row in range(rows):
        lines = pixels[row * stride : row * stride + field]
        if columns <= field * apart:
            for column in range(columns):
                yield row, column, slice(None), lines[:, column * step : column * step + reach]
            continue
        for line, first in itertools.product(range(field), range(apart)):
            seen = lines[line, first * step :].unfold(0, reach, apart * step).mT
            yield row, slice(first, None, apart), line, seen


def _batch_last(x):
    """[batch, channels, height, width] -> [height, width, channels, batch], contiguous."""
    return x.permute(2, 3, 1, 0).contiguous()


def _as_maps(answers, block):
    """[rows, columns, outputs, batch] -> [batch, maps, rows * block, columns * block]."""
    squares = answers.unflatten(2, (-1, block, block))  # rows columns maps down across batch
    return squares.permute(0, 3, 1, 4, 2, 5).flatten(2, 3).flatten(0, 1).permute(3, 2, 0, 1)


def _as_answers(z, block):
    """The inverse of `_as_maps`."""
    squares = _batch_last(z).unflatten(1, (-1, block)).unflatten(0, (-1, block))
    return squares.permute(0, 2, 4, 1, 3, 5).flatten(2, 4)


def check_positive(name, value):
    """Raises ValueError unless `value`, which is `name`, is a whole number above zero."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value}")


def check_input(x, channels, dtype, size=None):
    """Raises ValueError unless `x` is [batch, channels, height, width] of `dtype` (and `size`)."""
    if x.dim() != 4 or x.shape[1] != channels or size not in (None, tuple(x.shape[2:])):
        height, width = size or ("height", "width")
        raise ValueError(
            f"the input must be [batch, {channels}, {height}, {width}], not {list(x.shape)}"
        )
    if x.dtype != dtype:
        raise ValueError(f"the input must be {dtype} as the weights are, not {x.dtype}")


def _check_weights(weights, block):
    check_positive("block", block)
    if weights.dim() != 6 or weights.shape[3] != weights.shape[4] or 0 in weights.shape:
        raise ValueError(
            "weights must be [rows, columns, outputs, field, field, channels], "
            f"not {list(weights.shape)}"
        )
    if weights.shape[2] % block**2:
        raise ValueError(
            f"{weights.shape[2]} outputs of a window cannot be squares of {block} x {block}"
        )


def check_windows(weights, size, stride):
    """Raises ValueError unless `size` (height, width) has as many windows as there are weights."""
    fitting = tuple(windows(length, weights.shape[3], stride) for length in size)
    if fitting != tuple(weights.shape[:2]):
        raise ValueError(
            f"weights of {weights.shape[0]} x {weights.shape[1]} windows do not fit on "
            f"{size[0]} x {size[1]} pixels, which have {fitting[0]} x {fitting[1]}"
        )
