"""Exercises of notebook 06: columns, Winograd on a row, the cheapest method, a wrapped border."""

from fractions import Fraction
from math import ceil

import torch
from torch.nn.functional import pad

from course.classroom.answers import function
from course.classroom.comparison import close, compare, refuse
from course.classroom.problems import Exercise, Wrong
from course.learning.convolution import tied as convolution
from course.learning.convolution.winograd import winograd_multiplications


def columns_of(photo, height, width):
    """What a filter of height x width sees at each place of a photograph: [taps, places]."""
    seen = photo.unfold(0, height, 1).unfold(1, width, 1)  # [rows, columns, height, width]
    return seen.flatten(2).flatten(0, 1).T


def windows(photo, height, width):
    return photo.unfold(0, height, 1).unfold(1, width, 1)


COLUMN_SLIPS = (
    (
        lambda *case: windows(*case).transpose(2, 3).flatten(2).flatten(0, 1).T,
        "the taps of a column stand row by row, not column by column.",
    ),
    (
        lambda *case: windows(*case).transpose(0, 1).flatten(2).flatten(0, 1).T,
        "the places follow one another row by row, not column by column.",
    ),
    (
        lambda *case: columns_of(*case).flip(0),
        "the taps are turned round: the filter is not flipped here.",
    ),
    (
        lambda photo, height, width: windows(photo, height, width).reshape(height * width, -1),
        "one column per place: here the windows are cut in pieces by reshape. Transpose instead.",
    ),
)


def check_columns(answer):
    sizes = ((5, 7), (2, 3)), ((6, 5), (3, 3)), ((4, 3), (1, 1)), ((3, 9), (3, 2))
    cases = [(drawn(*photo), *taps) for photo, taps in sizes]
    compare(
        answer,
        columns_of,
        cases,
        COLUMN_SLIPS,
        otherwise="column p holds what the filter sees at place p, row by row.",
        shape_is="a table with a row for each tap and a column for each place",
    )
    return "one matrix product away from a convolution."


class Counting:
    """A number that notes in a list each product with another of its kind."""

    def __init__(self, value, noted):
        self.value, self.noted = value, noted

    def __add__(self, other):
        return Counting(self.value + bare(other), self.noted)

    def __sub__(self, other):
        return self + -1 * other

    def __rsub__(self, other):
        return -1 * self + other

    def __mul__(self, other):
        if isinstance(other, Counting):
            self.noted.append(1)
        return Counting(self.value * bare(other), self.noted)

    def __truediv__(self, other):
        return Counting(self.value / bare(other), self.noted)

    def __neg__(self):
        return -1 * self

    __radd__, __rmul__ = __add__, __mul__


def bare(number):
    return number.value if isinstance(number, Counting) else number


def winograd_row(row, taps):
    """What 3 taps make of a row, two results at a time from four products."""
    g, results = taps, len(row) - 2
    padded, made = list(row) + [0], []  # an odd result is made with one beyond the end
    for start in range(0, results, 2):
        d = padded[start : start + 4]
        first = (d[0] - d[2]) * g[0]
        second = (d[1] + d[2]) * ((g[0] + g[1] + g[2]) / 2)
        third = (d[2] - d[1]) * ((g[0] - g[1] + g[2]) / 2)
        last = (d[3] - d[1]) * g[2]
        made += [first + second + third, second - third + last]
    return made[:results]


def by_definition(row, taps):
    return [sum(a * b for a, b in zip(row[at:], taps)) for at in range(len(row) - 2)]


def in_tiles(step=2, whole=1, signs=(1, 1)):
    """Rows as a slip would make them: tiles too far apart, taps not halved, a sign wrong."""

    def slip(row, taps):
        padded, made = list(row) + [0] * 4 * len(row), []
        for start in range(0, step * len(row), step):
            d = padded[start : start + 4]
            first, last = (d[0] - d[2]) * taps[0], signs[1] * (d[3] - d[1]) * taps[2]
            second = (d[1] + d[2]) * sum(taps) * whole / 2
            third = signs[0] * (d[2] - d[1]) * (taps[0] - taps[1] + taps[2]) * whole / 2
            made += [first + second + third, second - third + last]
        return made[: len(row) - 2]

    return slip


ROW_SLIPS = (
    (lambda row, taps: by_definition(row, taps[::-1]), "the taps are turned round here."),
    (in_tiles(step=4), "two results per tile: the next tile begins 2 further on, not 4."),
    (in_tiles(step=1), "two results per tile: the next tile begins 2 further on, not 1."),
    (in_tiles(whole=2), "halve the sum g0 + g1 + g2, and g0 - g1 + g2 too."),
    (in_tiles(signs=(-1, 1)), "the third product has the wrong sign."),
    (in_tiles(signs=(1, -1)), "the fourth product has the wrong sign."),
)


ROWS = (  # the last one in fractions: no rounding may hide in the products
    ([2, 5, 4, 1], [1, 2, 3]),
    ([3, 1, -4, 1, 5, 9, -2, 6, 5], [2, -7, 1]),
    ([7, 0, -3], [4, 5, -6]),
    ([Fraction(1, 3), 8, -2, 0, 5, 11], [Fraction(2, 7), 3, -1]),
)


def check_row(answer):
    spent = []
    for row, taps in ROWS:
        noted = []
        mine, its = ([Counting(Fraction(x), noted) for x in each] for each in (row, taps))
        made = function(answer)(mine, its)
        if not isinstance(made, list | tuple):
            raise Wrong(f"a list with one result per place is wanted, not {made!r:.40}.")
        compare_rows([float(bare(each)) for each in made], row, taps)
        spent.append((len(noted), len(made)))
    for products, results in spent:
        judge_products(products, results)
    return "two products per result, exactly; and the row may end anywhere."


def compare_rows(made, row, taps):
    if len(made) != len(row) - 2:
        raise Wrong(f"{len(row)} numbers give {len(row) - 2} results, not {len(made)}.")
    right = [float(each) for each in by_definition(row, taps)]
    if close(made, right):
        return
    for slip, sentence in ROW_SLIPS:
        refuse(made, ([float(each) for each in slip(row, taps)], sentence))
    if len(row) < 5:
        raise Wrong(f"{row} under {taps} gives {right}, and not {made}.")
    raise Wrong("right for one tile, but not for a row of several.")


def judge_products(products, results):
    if products == 3 * results and results > 1:
        raise Wrong("right, but this is the definition: 3 products per result. Two are enough.")
    if products < results + 2:  # no way to these results has fewer (Winograd)
        raise Wrong(
            f"right, but only {products} products were seen for {results} results, and no way has "
            f"fewer than {results + 2}: multiply the numbers as they come."
        )
    if products > 4 * ceil(results / 2):
        raise Wrong(
            f"right, but with {products} products for {results} results; every two need 4. "
            "Halve by / 2, add by +: only number * tap counts."
        )


def cheapest_method(images, filters, stride, padding):
    """The method with the fewest multiplications: gemm, fft, winograd 2 or winograd 4."""
    counts = {
        "gemm": convolution.multiplications(images, filters, stride=stride, padding=padding),
        "fft": convolution.fft_multiplications(images, filters, padding=padding),
    }
    if filters.shape[2:] == (3, 3) and stride == 1:
        for tile in 2, 4:
            count = winograd_multiplications(images, filters, tile=tile, padding=padding)
            counts[f"winograd {tile}"] = count
    return min(counts, key=counts.get)


LAYERS = (  # pictures, channels, side; filters, taps; stride, padding
    (4, 32, 30, 32, 3, 1, 1),
    (4, 16, 40, 32, 9, 1, 4),
    (2, 16, 33, 64, 3, 2, 1),
    (4, 64, 16, 16, 1, 1, 0),
    (8, 32, 4, 32, 3, 1, 0),
    (2, 3, 64, 16, 5, 2, 2),
    (4, 32, 32, 16, 13, 2, 6),
    (2, 16, 12, 16, 11, 4, 5),  # large filters, and yet few places: the stride decides
    (2, 3, 7, 16, 3, 1, 1),  # without its padding another tile would win
)


def check_method(answer):
    for pictures, channels, side, out, taps, stride, padding in LAYERS:
        images = torch.zeros(pictures, channels, side, side)
        filters = torch.zeros(out, channels, taps, taps)
        layer = (
            f"{pictures} pictures [{channels}, {side}, {side}], {out} filters of {taps} x {taps}, "
            f"stride {stride}, padding {padding}"
        )
        right = cheapest_method(images, filters, stride, padding)
        judge_method(function(answer)(images, filters, stride, padding), right, layer)
    return f"for each of {len(LAYERS)} layers the fewest; notice how often it is not gemm."


def judge_method(got, right, layer):
    if got is None:
        raise Wrong("nothing came back: does the function end in return?")
    if got not in ("gemm", "fft", "winograd 2", "winograd 4"):
        raise Wrong(f"'gemm', 'fft', 'winograd 2' or 'winograd 4' is wanted, not {got!r:.40}.")
    if got.startswith("winograd") and not ("of 3 x 3" in layer and "stride 1" in layer):
        raise Wrong(f"Winograd needs 3 x 3 filters and stride 1; here: {layer}.")
    if got != right:
        raise Wrong(f"{right} needs fewer multiplications than {got} for {layer}.")


def filtered_by_frequencies(photo, filter):
    """A photograph under a filter of odd size, zeros around it: of the same size."""
    height, width = photo.shape
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (right, right, down, down))
    waves = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape).conj()
    return torch.fft.irfft2(waves, padded.shape)[:height, :width]


def filtered_with_a_bug(photo, filter):
    """A photograph under a filter of odd size, zeros around it: of the same size."""
    height, width = photo.shape
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (right, right, down, down))
    changed = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape)
    return torch.fft.irfft2(changed, padded.shape)[2 * down :, 2 * right :][:height, :width]


def cut_too_late(photo, filter):
    """With the conjugate, and the cut-out that was right without it."""
    height, width = photo.shape
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (right, right, down, down))
    waves = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape).conj()
    return torch.fft.irfft2(waves, padded.shape)[2 * down :, 2 * right :][:height, :width]


def bordered(rows, columns, flip=False, moved=0):
    """As a slip would filter: borders of other kinds, the filter turned round, or half a filter
    too far up (moved -1) or down (1)."""

    def slip(photo, filter):
        down, right = filter.shape[0] // 2, filter.shape[1] // 2
        before, behind = 1 + moved, 1 - moved
        around = pad(photo[None, None], (0, 0, before * down, behind * down), rows)
        around = pad(around, (before * right, behind * right, 0, 0), columns)
        return convolution.direct(around, (filter.flip(0, 1) if flip else filter)[None, None])[0, 0]

    return slip


BORDER_SLIPS = (
    (bordered("circular", "circular"), "still wrapped: the left side sees the right one."),
    (bordered("constant", "circular"), "left and right still see each other."),
    (bordered("circular", "constant"), "top and bottom still see each other."),
    (bordered("reflect", "reflect"), "around the photograph are zeros, not its mirror image."),
    (bordered("replicate", "replicate"), "around the photograph are zeros, not its border again."),
    (
        bordered("constant", "constant", flip=True),
        "the filter is turned round: right for blur, and wrong where left and right differ.",
    ),
    (
        cut_too_late,
        "the filter is right now, but the cut-out is not: where do the results begin?",
    ),
    (bordered("constant", "constant", moved=1), "half a filter too far down: no roll is needed."),
    (
        bordered("constant", "constant", moved=-1),
        "half a filter too far up: roll it, or pad there.",
    ),
)


def check_filtered(answer):
    sizes = ((9, 14), (5, 3)), ((8, 7), (3, 7)), ((11, 12), (1, 5)), ((6, 6), (1, 1))
    cases = [(drawn(*photo), drawn(*taps)) for photo, taps in sizes]
    compare(
        answer,
        filtered_by_frequencies,
        cases,
        BORDER_SLIPS,
        otherwise="the borders are right where zeros stand between them; is the cut-out the right "
        "one?",
        shape_is="the filtered photograph",
        tolerance=1e-4,
    )
    return "zeros keep the borders apart, and the conjugate keeps the filter as it is."


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


EXERCISES = [
    Exercise(
        "columns_of",
        "write columns_of(photo, height, width): a row for each tap, a column for each place.",
        check_columns,
        (
            "tap (i, j) sees the photograph shifted by i and j: a slice, flattened, is a row.",
            "the slice begins at row i and has photo.shape[0] - height + 1 rows.",
            "torch.stack([...]) of these rows, i before j.",
        ),
        columns_of,
    ),
    Exercise(
        "winograd_row",
        "write winograd_row(row, taps): what 3 taps make of a row, with 4 products for every two "
        "results.",
        check_row,
        (
            "one tile: four numbers d, four products, two results. Write it as above.",
            "the tiles begin at 0, 2, 4, ...; together they make len(row) - 2 results.",
            "is one result left over? Append a zero to the row, and drop the last result.",
        ),
        winograd_row,
    ),
    Exercise(
        "cheapest_method",
        "write cheapest_method(images, filters, stride, padding): 'gemm', 'fft', 'winograd 2' or "
        "'winograd 4', whichever needs the fewest multiplications.",
        check_method,
        (
            "convolution.multiplications, convolution.fft_multiplications and "
            "winograd.winograd_multiplications count.",
            "Winograd is a candidate for 3 x 3 filters with stride 1 only.",
            "collect {name: count} and return min(counts, key=counts.get).",
        ),
        cheapest_method,
    ),
    Exercise(
        "filtered_by_frequencies",
        "find the bug in filtered_by_frequencies and repair it, so that it is right for every "
        "filter of odd size.",
        check_filtered,
        (
            "blur looks the same when it is turned by 180 degrees; edges does not.",
            "the product of two transforms is the mathematicians' convolution, which turns the "
            "filter round. What did the row of four numbers need?",
            ".conj() after the filter's transform; the results then begin in the first row and "
            "column: cut [:height, :width].",
        ),
        filtered_by_frequencies,
        given=filtered_with_a_bug,
    ),
]
