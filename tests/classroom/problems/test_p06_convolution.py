"""Columns, a row by Winograd, a choice and a repaired border: answers that were really likely."""

import numpy
import torch
from torch.nn.functional import conv2d, pad

from course.classroom.problems import p06_convolution as p06
from course.learning.convolution import tied as convolution
from course.learning.convolution import winograd
from tests.classroom.gallery import Gallery, gallery_tests

# Columns


def columns_stub(photo, height, width):
    """What a filter of height x width sees at each place of a photograph: [taps, places]."""
    ...


def columns_by_shifts(photo, height, width):
    rows, columns = photo.shape[0] - height + 1, photo.shape[1] - width + 1
    seen = [photo[i : i + rows, j : j + columns] for i in range(height) for j in range(width)]
    return torch.stack([each.flatten() for each in seen])


def columns_by_places(photo, height, width):
    rows, columns = photo.shape[0] - height + 1, photo.shape[1] - width + 1
    windows = [
        photo[i : i + height, j : j + width].flatten() for i in range(rows) for j in range(columns)
    ]
    return torch.stack(windows, dim=1)


def columns_of_the_package(photo, height, width):
    return convolution.columns(photo[None, None], (height, width))[0]


def columns_as_rows(photo, height, width):
    return columns_by_places(photo, height, width).T


def columns_one_place_short(photo, height, width):
    rows, columns = photo.shape[0] - height, photo.shape[1] - width
    seen = [photo[i : i + rows, j : j + columns] for i in range(height) for j in range(width)]
    return torch.stack([each.flatten() for each in seen])


def columns_with_taps_down(photo, height, width):
    rows, columns = photo.shape[0] - height + 1, photo.shape[1] - width + 1
    seen = [photo[i : i + rows, j : j + columns] for j in range(width) for i in range(height)]
    return torch.stack([each.flatten() for each in seen])


def columns_with_places_down(photo, height, width):
    rows, columns = photo.shape[0] - height + 1, photo.shape[1] - width + 1
    windows = [
        photo[i : i + height, j : j + width].flatten() for j in range(columns) for i in range(rows)
    ]
    return torch.stack(windows, dim=1)


def columns_flipped(photo, height, width):
    return columns_by_shifts(photo, height, width).flip(0)


def columns_reshaped(photo, height, width):
    return photo.unfold(0, height, 1).unfold(1, width, 1).reshape(height * width, -1)


def columns_padded(photo, height, width):
    return columns_by_shifts(pad(photo, (1, 1, 1, 1)), height, width)


def columns_of_one_tap(photo, height, width):
    return columns_by_shifts(photo, height, width)[:1].repeat(height * width, 1)


# A row


def row_stub(row, taps):
    """What 3 taps make of a row, two results at a time from four products."""
    ...


def row_by_the_package(row, taps):
    made = []
    for at in range(0, len(row) - 2, 2):
        tile = list(row[at : at + 4])
        made += winograd.one_tile(tile + [0] * (4 - len(tile)), taps)
    return made[: len(row) - 2]


def row_with_taps_first(row, taps):
    whole, without = (taps[0] + taps[1] + taps[2]) * 0.5, (taps[0] - taps[1] + taps[2]) / 2
    made = []
    for a, b, c, d in zip(row[::2], row[1::2], row[2::2], row[3::2]):
        second, third = (b + c) * whole, (c - b) * without
        made += [(a - c) * taps[0] + second + third, second - third - (b - d) * taps[2]]
    if len(row) % 2:
        made.append(sum(x * g for x, g in zip(row[-3:], taps)))
    return made


def row_by_definition(row, taps):
    return [sum(row[at + k] * taps[k] for k in range(3)) for at in range(len(row) - 2)]


def row_turned_round(row, taps):
    return row_with_taps_first(row, taps[::-1])


def row_in_steps_of_four(row, taps):
    row, made = list(row), []
    for at in range(0, 2 * len(row), 4):
        made += p06.winograd_row((row + [0] * 2 * len(row))[at : at + 4], taps)
    return made[: len(row) - 2]


def row_in_steps_of_one(row, taps):
    row, made = list(row), []
    for at in range(len(row)):
        made += p06.winograd_row((row + [0] * 4)[at : at + 4], taps)
    return made[: len(row) - 2]


def row_not_halved(row, taps):
    return p06.in_tiles(whole=2)(row, taps)


def row_with_the_third_turned(row, taps):
    return p06.in_tiles(signs=(-1, 1))(row, taps)


def row_with_the_fourth_turned(row, taps):
    return p06.in_tiles(signs=(1, -1))(row, taps)


def row_without_its_end(row, taps):
    made = []
    for at in range(0, len(row) - 3, 2):
        made += p06.winograd_row(row[at : at + 4], taps)
    return made


def row_with_one_too_many(row, taps):
    return p06.winograd_row(list(row) + [0] * (len(row) % 2), taps)


def row_of_one_tile(row, taps):
    return (p06.winograd_row(row[:4], taps) * len(row))[: len(row) - 2]


def row_with_five_products(row, taps):
    made = []
    for at in range(0, len(row) - 2, 2):
        a, b, c, d = (list(row) + [0])[at : at + 4]
        made += [a * taps[0] + (b * taps[1] + c * taps[2]), (b + 0 * d) * taps[0]]
        made[-1] = made[-1] + c * taps[1] + d * taps[2]
    return made[: len(row) - 2]


def row_that_is_printed(row, taps):
    str(row_by_definition(row, taps))


def row_in_an_array(row, taps):
    return torch.tensor(row_with_taps_first(row, taps))


def row_plus_one(row, taps):
    return [each + 1 for each in row_with_taps_first(row, taps)]


def row_taken_out_of_its_counters(row, taps):
    return [sum(x.value * g.value for x, g in zip(row[at:], taps)) for at in range(len(row) - 2)]


# The cheapest


def method_stub(images, filters, stride, padding):
    """The name of the method with the fewest multiplications."""
    ...


def method_in_ifs(images, filters, stride, padding):
    best, fewest = (
        "gemm",
        convolution.multiplications(images, filters, stride=stride, padding=padding),
    )
    waves = convolution.fft_multiplications(images, filters, padding=padding)
    if waves < fewest:
        best, fewest = "fft", waves
    if stride == 1 and filters.shape[-1] == filters.shape[-2] == 3:
        for tile in 2, 4:
            count = winograd.winograd_multiplications(images, filters, tile=tile, padding=padding)
            if count < fewest:
                best, fewest = f"winograd {tile}", count
    return best


def method_always_gemm(images, filters, stride, padding):
    return "gemm"


def method_always_waves(images, filters, stride, padding):
    return "winograd 4" if filters.shape[2:] == (3, 3) and stride == 1 else "fft"


def method_with_the_largest_tile(images, filters, stride, padding):
    best = method_in_ifs(images, filters, stride, padding)
    return "winograd 4" if best == "winograd 2" else best


def method_without_the_stride(images, filters, stride, padding):
    return method_in_ifs(images, filters, 1, padding)


def method_of_the_most(images, filters, stride, padding):
    most = convolution.multiplications(images, filters, stride=stride, padding=padding)
    waves = convolution.fft_multiplications(images, filters, padding=padding)
    return "gemm" if most > waves else "fft"


def method_without_winograd(images, filters, stride, padding):
    few = convolution.multiplications(images, filters, stride=stride, padding=padding)
    waves = convolution.fft_multiplications(images, filters, padding=padding)
    return "gemm" if few < waves else "fft"


def method_without_the_padding(images, filters, stride, padding):
    counts = {
        "gemm": convolution.multiplications(images, filters, stride=stride, padding=padding),
        "fft": convolution.fft_multiplications(images, filters),
    }
    if filters.shape[2:] == (3, 3) and stride == 1:
        for tile in 2, 4:
            counts[f"winograd {tile}"] = winograd.winograd_multiplications(
                images, filters, tile=tile
            )
    return min(counts, key=counts.get)


def method_by_rules_of_thumb(images, filters, stride, padding):
    if filters.shape[2] == 3 and stride == 1:
        return "winograd 4" if images.shape[2] > 4 else "winograd 2"
    return "fft" if filters.shape[2] >= 9 else "gemm"


def method_as_a_count(images, filters, stride, padding):
    return convolution.multiplications(images, filters, stride=stride, padding=padding)


def method_that_forgets_to_return(images, filters, stride, padding):
    method_in_ifs(images, filters, stride, padding)


def method_that_asks_for_every_count(images, filters, stride, padding):
    counts = {
        "gemm": convolution.multiplications(images, filters, stride=stride, padding=padding),
        "winograd 4": winograd.winograd_multiplications(images, filters, tile=4, padding=padding),
    }
    return min(counts, key=counts.get)


# The border


def filtered_unpadded(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    waves = torch.fft.rfft2(photo) * torch.fft.rfft2(filter, photo.shape).conj()
    return torch.fft.irfft2(waves, photo.shape).roll((down, right), (0, 1))


def filtered_turned_first(photo, filter):
    return p06.filtered_with_a_bug(photo, filter.flip(0, 1))


def filtered_with_the_conjugate_alone(photo, filter):
    padded = pad(photo, [side // 2 for side in filter.shape[::-1] for _ in range(2)])
    waves = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape).conj()
    cut = torch.fft.irfft2(waves, padded.shape)[filter.shape[0] - 1 :, filter.shape[1] - 1 :]
    return cut[: photo.shape[0], : photo.shape[1]]


def filtered_padded_below(photo, filter):
    height, width = photo.shape
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (0, right, 0, down))
    waves = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape).conj()
    result = torch.fft.irfft2(waves, padded.shape).roll((down, right), (0, 1))
    return result[:height, :width]


def filtered_by_the_package(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (right, right, down, down))
    return convolution.fft(padded[None, None], filter[None, None])[0, 0]


def filtered_by_torch(photo, filter):
    padding = filter.shape[0] // 2, filter.shape[1] // 2
    return conv2d(photo[None, None], filter[None, None], padding=padding)[0, 0]


def filtered_in_numpy(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = numpy.pad(photo.numpy(), ((down, down), (right, right)))
    waves = numpy.fft.fft2(padded) * numpy.fft.fft2(filter.numpy(), padded.shape).conj()
    return numpy.fft.ifft2(waves).real[: photo.shape[0], : photo.shape[1]]


def filtered_without_the_cut(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (right, right, down, down))
    waves = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape).conj()
    return torch.fft.irfft2(waves, padded.shape)


def filtered_and_rolled_too(photo, filter):
    height, width = photo.shape
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    padded = pad(photo, (right, right, down, down))
    waves = torch.fft.rfft2(padded) * torch.fft.rfft2(filter, padded.shape).conj()
    return torch.fft.irfft2(waves, padded.shape).roll((down, right), (0, 1))[:height, :width]


def filtered_without_conjugate(photo, filter):
    return filtered_by_torch(photo, filter.flip(0, 1))


def filtered_with_padded_sides(photo, filter):
    right = filter.shape[1] // 2
    wider = filtered_unpadded(pad(photo, (right, right)), filter)
    return wider[:, right : right + photo.shape[1]]


def filtered_with_padded_ends(photo, filter):
    down = filter.shape[0] // 2
    higher = filtered_unpadded(pad(photo, (0, 0, down, down)), filter)
    return higher[down : down + photo.shape[0]]


def filtered_with_a_mirror(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    around = pad(photo[None, None], (right, right, down, down), "reflect")
    return conv2d(around, filter[None, None])[0, 0]


def filtered_with_its_border(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    around = pad(photo[None, None], (right, right, down, down), "replicate")
    return conv2d(around, filter[None, None])[0, 0]


def filtered_with_the_roll_undone(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    return filtered_unpadded(photo, filter).roll((-down, -right), (0, 1))


def filtered_with_a_larger_transform(photo, filter):
    size = [2 * each for each in photo.shape]
    waves = torch.fft.rfft2(photo, size) * torch.fft.rfft2(filter, size).conj()
    return torch.fft.irfft2(waves, size)[: photo.shape[0], : photo.shape[1]]


def filtered_wrapped_another_way(photo, filter):
    down, right = filter.shape[0] // 2, filter.shape[1] // 2
    around = pad(photo[None, None], (right, right, down, down), "circular")
    return conv2d(around, filter[None, None])[0, 0]


GALLERIES = [
    Gallery(
        "columns_of",
        columns_stub,
        [p06.columns_of, columns_by_shifts, columns_by_places, columns_of_the_package],
        {
            "has shape [6, 20], not [20, 6].": columns_as_rows,
            "has shape [6, 20], not [6, 12].": columns_one_place_short,
            "has shape [6, 20], not [6, 42].": columns_padded,
            "the taps of a column stand row by row": columns_with_taps_down,
            "the places follow one another row by row": columns_with_places_down,
            "the taps are turned round": columns_flipped,
            "the windows are cut in pieces by reshape": columns_reshaped,
            "column p holds what the filter sees at place p": columns_of_one_tap,
        },
    ),
    Gallery(
        "winograd_row",
        row_stub,
        [p06.winograd_row, row_by_the_package, row_with_taps_first],
        {
            "right, but this is the definition": row_by_definition,
            "the taps are turned round here.": row_turned_round,
            "the next tile begins 2 further on, not 4.": row_in_steps_of_four,
            "the next tile begins 2 further on, not 1.": row_in_steps_of_one,
            "halve the sum g0 + g1 + g2": row_not_halved,
            "the third product has the wrong sign.": row_with_the_third_turned,
            "the fourth product has the wrong sign.": row_with_the_fourth_turned,
            "9 numbers give 7 results, not 6.": row_without_its_end,
            "9 numbers give 7 results, not 8.": row_with_one_too_many,
            "right for one tile, but not for a row of several.": row_of_one_tile,
            "only 0 products were seen for 2 results": row_taken_out_of_its_counters,
            "a list with one result per place is wanted, not None.": row_that_is_printed,
            "Could not infer dtype of Counting": row_in_an_array,
            "[2, 5, 4, 1] under [1, 2, 3] gives [24.0, 16.0], and not [25.0, 17.0].": row_plus_one,
        },
    ),
    Gallery(
        "cheapest_method",
        method_stub,
        [p06.cheapest_method, method_in_ifs],
        {
            "winograd 4 needs fewer multiplications than gemm for 4 pictures": method_always_gemm,
            "gemm needs fewer multiplications than fft for 2 pictures [16, 33": method_always_waves,
            "winograd 2 needs fewer multiplications than winograd 4": method_with_the_largest_tile,
            "Winograd needs 3 x 3 filters and stride 1; here: 2": method_without_the_stride,
            "winograd 4 needs fewer multiplications than fft": method_without_winograd,
            "fft for 2 pictures [16, 12, 12], 16 filters of 11 x 11, stride 4, padding 5": (
                method_by_rules_of_thumb
            ),
            "gemm needs fewer multiplications than fft for 2 pictures [16, 12": (
                method_without_the_padding
            ),
            "'winograd 4' is wanted, not 33177600.": method_as_a_count,
            "does the function end in return?": method_that_forgets_to_return,
            "winograd is for 3 x 3 filters only": method_that_asks_for_every_count,
        },
    ),
    Gallery(
        "filtered_by_frequencies",
        p06.filtered_with_a_bug,
        [
            *(p06.filtered_by_frequencies, filtered_padded_below, filtered_by_the_package),
            *(filtered_by_torch, filtered_in_numpy, filtered_turned_first),
        ],
        {
            "has shape [9, 14], not [13, 16].": filtered_without_the_cut,
            "still wrapped": filtered_wrapped_another_way,
            "left and right still see each other.": filtered_with_padded_ends,
            "top and bottom still see each other.": filtered_with_padded_sides,
            "not its mirror image.": filtered_with_a_mirror,
            "not its border again.": filtered_with_its_border,
            "the filter is turned round": filtered_without_conjugate,
            "where do the results begin?": filtered_with_the_conjugate_alone,
            "half a filter too far down": filtered_and_rolled_too,
            "half a filter too far up": filtered_with_a_larger_transform,
            "is the cut-out the right": filtered_with_the_roll_undone,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
