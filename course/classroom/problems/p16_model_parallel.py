"""Exercises of notebook 16: the bytes of a border, the interval that windows need, a pair of cut
layers with one exchange, the grid that sends least, a bias that is added once for every rank."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close, compare
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_reduce
from course.parallel.array import Box, evenly
from course.parallel.array.pieces import cost

SIDE, WINDOW, MAPS, BATCH = 50, 20, 8, 96
BORDER = (SIDE + WINDOW - 1) ** 2 - SIDE**2  # pixels around an inner tile
INNER, HIDDEN, OUTER = 5, 40, 3  # of the pair; gathering so many hidden neurons shows


def check_border_megabytes(answer):
    got = number(answer)
    right = 4 * BATCH * MAPS * BORDER / 1e6
    slips = {
        right / 4: "a float32 number has 4 bytes.",
        right / BATCH: "there are 96 images in a batch, and each has its border.",
        right / MAPS: "each of the 8 maps has a border.",
        right * 1e6: "that is the number of bytes: megabytes were asked for.",
        right * 1e6 / 2**20: "a megabyte is a million bytes here, and not 2**20.",
        8 * right: "that is the number of megabits: a byte has 8 of them.",
        4 * BATCH * MAPS * (SIDE + WINDOW - 1) ** 2 / 1e6: "its own tile a rank has already.",
        4 * BATCH * MAPS * 2 * SIDE * (WINDOW - 1) / 1e6: "the corners are needed, too.",
        4 * BATCH * MAPS * ((SIDE + WINDOW) ** 2 - SIDE**2) / 1e6:
            "a window of 20 on the last pixel of a tile reaches 19 beyond it.",
        4 * BATCH * MAPS * ((SIDE + 2 * WINDOW - 2) ** 2 - SIDE**2) / 1e6:
            "a window reaches 19 pixels beyond its tile in all, not on both sides.",
    }  # fmt: skip
    for slip, sentence in slips.items():
        if abs(got / slip - 1) < 0.004:
            raise Wrong(sentence)
    if abs(got / right - 1) > 0.02:
        raise Wrong("that is another number: how many pixels more than its own does a rank need?")
    return f"69² − 50² = {BORDER} pixels, times 8 maps, 96 images and 4 bytes: {right:.2f} MB."


def needed_interval(o0, o1, kernel, stride=1, padding=0, dilation=1):
    """The interval (start, stop) of places that the windows o0 to o1 - 1 see."""
    first = o0 * stride - padding
    last = (o1 - 1) * stride - padding + dilation * (kernel - 1)
    return first, last + 1


def as_numbers(answer):
    """What an answer's interval is, as a tensor.  Raises Wrong where it is none."""

    def numbers(*case):
        interval = function(answer)(*case)
        if not isinstance(interval, tuple | list) or len(interval) != 2:
            raise Wrong(f"an interval is a pair (start, stop), not {interval!r:.40}.")
        return torch.tensor([number(each) for each in interval])

    return numbers


def check_needed_interval(answer):
    cases = [(3, 7, 4, 2), (0, 4, 3), (4, 8, 3), (2, 5, 1), (0, 3, 5, 1, 2), (2, 6, 3, 2, 1),
             (1, 4, 3, 1, 0, 2), (5, 9, 4, 3, 2, 2), (7, 8, 2, 1, 1, 3)]  # fmt: skip

    def slip(change):
        return lambda *case: as_numbers(lambda *c: change(*needed_interval(*c), *c))(*case)

    slips = [
        (slip(lambda a, b, *c: (a, b - 1)), "stop is the first place that is not seen any more."),
        (slip(lambda a, b, *c: (a, b + 1)), "stop is one too far: the last window is o1 - 1."),
        (lambda o0, o1, *c: as_numbers(needed_interval)(o0, o1 + 1, *c),
         "the last window is number o1 - 1, not o1."),
        (lambda o0, o1, k, s=1, p=0, d=1: as_numbers(needed_interval)(o0, o1, k, 1, p, d),
         "windows are `stride` places apart: the first of window o is at o * stride - padding."),
        (lambda o0, o1, k, s=1, p=0, d=1: as_numbers(needed_interval)(o0, o1, k, s, 0, d),
         "with padding, the first window begins before the image."),
        (lambda o0, o1, k, s=1, p=0, d=1: as_numbers(needed_interval)(o0, o1, k, s, -p, d),
         "padding moves windows to the left: the places before the image have negative numbers."),
        (lambda o0, o1, k, s=1, p=0, d=1: as_numbers(needed_interval)(o0, o1, k, s, p, 1),
         "with a dilation d, the places that a window sees are d apart."),
        (slip(lambda a, b, *c: (max(a, 0), b)),
         "places outside the image are needed as well: they are the padding."),
    ]  # fmt: skip
    compare(as_numbers(answer), as_numbers(needed_interval), cases, slips,
            otherwise="try one window: o1 = o0 + 1 sees which places?",
            shape_is="an interval")  # fmt: skip
    return "right for every kernel, stride, padding and dilation: no other restriction is needed."


def pair_of_layers(comm, w, v, x):
    """v relu(w x) on all ranks: w is cut by outputs, v by inputs, and one sum is exchanged."""
    w, v = w.tensor_split(comm.size)[comm.rank], v.tensor_split(comm.size, 1)[comm.rank]
    y = v @ torch.relu(w @ x)
    all_reduce(comm, y)
    return y


VECTORS = {  # flop of products that torch does not count
    torch.ops.aten.mv: lambda w, x, **_: 2 * w[0] * w[1],
    torch.ops.aten.dot: lambda a, b, **_: 2 * a[0],
}


def use_pair(comm, answer, hidden):
    """The answer's value, the serial one and some slips, and the flop that it took."""
    generator = torch.Generator().manual_seed(hidden)
    w, v, x = (torch.randn(*shape, generator=generator, dtype=torch.float64)
               for shape in ((hidden, INNER), (OUTER, hidden), (INNER, 2)))  # fmt: skip
    hidden_numbers = torch.relu(w @ x)
    mine = v.tensor_split(comm.size, 1)[comm.rank]
    own = mine @ hidden_numbers.tensor_split(comm.size)[comm.rank]
    with FlopCounterMode(display=False, custom_mapping=VECTORS) as counter:
        got = answer(comm, w, v, x)
    return got, v @ hidden_numbers, own, v @ (w @ x), counter.get_total_flops()


def check_pair_of_layers(answer):
    for ranks, hidden in ((2, HIDDEN), (1, HIDDEN), (3, HIDDEN), (4, 3)):
        outcomes, trace = on_ranks(use_pair, ranks, function(answer), hidden)
        own = hidden // ranks + hidden % ranks  # one rank may take the rest
        part = 2 * 2 * own * (INNER + OUTER)  # two images, two flop a weight
        for rank, (got, right, own, linear, flop) in enumerate(outcomes):
            where = f"on {ranks} ranks, rank {rank}"
            check_value(where, ranks, got, right, own, linear)
            if flop > 1.5 * part:
                raise Wrong(f"{where} multiplies with more than its part of the weights: the value "
                            "is right, and nothing is saved.")  # fmt: skip
        check_exchange(ranks, trace, answer)
    return "one sum of y crosses, on 1 to 4 ranks, and no hidden neuron."


def check_value(where, ranks, got, right, own, linear):
    if not isinstance(got, torch.Tensor) or got.shape != right.shape:
        raise Wrong(f"{where} should return y {list(right.shape)}, on every rank.")
    if close(got, right):
        return
    if close(got, ranks * right):
        raise Wrong(f"{where} has {ranks} times y: what is summed must be a part on each rank.")
    if close(ranks * got, right):
        raise Wrong(f"{where} has the mean of the parts: y is their sum.")
    if close(got, torch.relu(right)):
        raise Wrong(f"{where} has relu(y): the layer after the relu has none of its own.")
    if close(got, own):
        raise Wrong(f"{where} has only what its own hidden neurons give: add up over ranks.")
    if close(got, linear):
        raise Wrong(f"{where} has v w x: the relu between the layers is missing.")
    raise Wrong(f"{where} has another y: is every hidden neuron used once, be there a rest or not, "
                "and is relu taken of whole sums only?")  # fmt: skip


def check_exchange(ranks, trace, answer):
    """Refuse more bytes than one all-reduce of y [OUTER, 2] in float64 takes."""
    only_messages(trace, answer, allowed=("all_reduce", "reduce", "broadcast", "reduce_scatter",
                                          "all_gather", "gather", "scatter", "all_to_all",
                                          "barrier"))  # fmt: skip
    most = max(trace.sent_bytes)
    if ranks > 1 and most > 2 * ranks * 8 * OUTER * 2:
        raise Wrong(
            f"on {ranks} ranks a rank sends {most} bytes: the value is right, but hidden neurons "
            "need not cross. Cut v by its inputs, as w is cut by its outputs."
        )


def best_grid(height, width, ranks, window):
    """The grid (down, across) of `ranks` tiles whose ranks together fetch the fewest pixels."""
    grids = [(down, ranks // down) for down in range(1, ranks + 1) if ranks % down == 0]
    return min(grids, key=lambda grid: fetched(height, width, grid, window))


def fetched(height, width, grid, window) -> int:
    """Pixels that all ranks together fetch for windows that begin in their own tile."""
    layout = evenly((height, width), grid)
    regions = [Box.of(*((a, min(b + window - 1, n))
                        for (a, b), n in zip(box.intervals, (height, width))))
               for box in layout.boxes()]  # fmt: skip
    return sum(got for _, got, _ in cost(layout, regions))


def check_best_grid(answer):
    cases = [(512, 512, 16, 9), (300, 300, 6, 3), (512, 512, 4, 33), (1024, 192, 16, 9),
             (96, 2048, 8, 5), (64, 64, 1, 5), (128, 1024, 4, 17), (512, 256, 4, 33),
             (256, 512, 4, 33)]  # fmt: skip
    for case in cases:
        height, width, ranks, window = case
        got = function(answer)(*case)
        if not isinstance(got, tuple | list) or len(got) != 2:
            raise Wrong(f"a grid is a pair (down, across), not {got!r:.40}.")
        down, across = map(number, got)
        if min(down, across) < 1 or down % 1 or across % 1:
            raise Wrong(f"{down:g} x {across:g} is no grid: tiles are counted in whole numbers.")
        if down * across != ranks:
            raise Wrong(f"{down:.0f} x {across:.0f} tiles are not {ranks}: one for each rank.")
        least, found = (fetched(*case[:2], grid, window)
                        for grid in (best_grid(*case), (int(down), int(across))))  # fmt: skip
        if found > least:
            sentence = f"{height} x {width} pixels on {ranks} ranks, window {window}: {down:.0f} x "
            sentence += f"{across:.0f} tiles fetch {found:,} pixels, and {least:,} are enough. "
            if fetched(height, width, (int(across), int(down)), window) == least:
                raise Wrong(sentence + "The two numbers may be in the wrong order.")
            if length_of_cuts(case, got) <= length_of_cuts(case, best_grid(*case)):
                raise Wrong(sentence + "Its cuts are no longer. But at each crossing of two cuts a "
                            "corner is fetched as well.")  # fmt: skip
            if down == across:
                raise Wrong(sentence + "The tiles should be square, not the grid.")
            raise Wrong(sentence + "Which sides of a tile cost?")
    return "no other grid fetches less: what crosses are edges, and corners where cuts meet."


def length_of_cuts(case, grid) -> int:
    """Pixels along all cuts of the image of a `case`, without a thought of their crossings."""
    return (grid[0] - 1) * case[1] + (grid[1] - 1) * case[0]


def row_parallel_layer(comm, w, b, x):
    """y = w x + b on all ranks, w cut by inputs: x [inputs of this rank], b [outputs]."""
    y = w @ x
    all_reduce(comm, y)
    return y + b


def row_parallel_layer_with_the_bug(comm, w, b, x):
    """y = w x + b on all ranks, w cut by inputs: x [inputs of this rank], b [outputs]."""
    y = w @ x + b
    all_reduce(comm, y)
    return y


def use_row_parallel(comm, answer):
    generator = torch.Generator().manual_seed(0)
    w, b, x = (torch.randn(*shape, generator=generator, dtype=torch.float64)
               for shape in ((4, 7), (4,), (7,)))  # fmt: skip
    mine, part = (each.tensor_split(comm.size, -1)[comm.rank] for each in (w, x))
    bias = b.clone()
    return answer(comm, mine.clone(), bias, part.clone()), w @ x, b, bias


def check_row_parallel_layer(answer):
    for ranks in (3, 1, 2):
        outcomes, trace = on_ranks(use_row_parallel, ranks, function(answer))
        for rank, (got, product, b, bias) in enumerate(outcomes):
            where = f"on {ranks} ranks, rank {rank}"
            if not torch.equal(b, bias):
                raise Wrong(f"{where} has changed b itself: the next batch would find another one.")
            if not isinstance(got, torch.Tensor) or got.shape != b.shape:
                raise Wrong(f"{where} should return y [4].")
            check_bias(where, ranks, got, product, b)
        if max(trace.sent_messages) > 8:
            raise Wrong("one all-reduce is enough: nothing more need be sent.")
    return "the bias enters y once, on 1, 2 and 3 ranks."


def check_bias(where, ranks, got, product, b):
    if close(got, product + b):
        return
    if close(got, product + ranks * b):
        raise Wrong(f"{where} adds the bias {ranks} times: it is in every part of the sum.")
    if close(got, product):
        raise Wrong(f"{where} has no bias: a rank that does not add it before the sum must do so "
                    "after it.")  # fmt: skip
    raise Wrong(f"{where} has another y: what may be summed over ranks, and what may not?")


EXERCISES = [
    Exercise(
        "border_megabytes",
        "a tile of 50 x 50 pixels has 8 maps, and the batch 96 images in float32; the windows of "
        "the next layer are 20 x 20, one pixel apart, and a rank has as many windows as pixels: "
        "how many megabytes must it fetch?",
        check_border_megabytes,
        (
            "50 windows, one pixel apart, of 20 pixels each: how many pixels do they see in a row?",
            "(50 + 20 - 1) in each direction, of which 50 x 50 are the rank's own.",
            "each pixel has 8 maps, in 96 images, of 4 bytes.",
        ),
        "69 x 69 - 50 x 50 = 2261 pixels; 2261 x 8 x 96 x 4 bytes = 6.95 MB.",
    ),
    Exercise(
        "needed_interval",
        "write needed_interval(o0, o1, kernel, stride=1, padding=0, dilation=1): the interval "
        "(start, stop) of places that the windows o0 to o1 - 1 of a convolution see.",
        check_needed_interval,
        (
            "the first place that window o sees is o * stride - padding.",
            "the last one that it sees is dilation * (kernel - 1) behind the first.",
            "the last window is o1 - 1; stop is one behind the last place.",
        ),
        needed_interval,
    ),
    Exercise(
        "pair_of_layers",
        "write pair_of_layers(comm, w, v, x): v relu(w x) on every rank, where each multiplies "
        "with its part of w and of v only, and no more crosses than one sum of y.",
        check_pair_of_layers,
        (
            "w.tensor_split(comm.size)[comm.rank] are the outputs of this rank.",
            "its part of the hidden neurons meets the same columns of v: v.tensor_split(comm.size, "
            "1)[comm.rank].",
            "what each rank has then is a part of a sum: all_reduce(comm, y).",
        ),
        pair_of_layers,
    ),
    Exercise(
        "best_grid",
        "write best_grid(height, width, ranks, window): the grid (down, across) of tiles for which "
        "all ranks together fetch the fewest pixels of a height x width image.",
        check_best_grid,
        (
            "try all (down, ranks // down) where down divides ranks.",
            "down - 1 cuts are `width` long, across - 1 are `height` long, each is window - 1 "
            "pixels wide, and at each crossing there is a corner as well.",
            "where no tile is narrower than its halo, all ranks together see (height + (down - 1) "
            "* (window - 1)) * (width + (across - 1) * (window - 1)) pixels.",
        ),
        best_grid,
    ),
    Exercise(
        "row_parallel_layer",
        "find the bug in row_parallel_layer(comm, w, b, x), which is right on one rank, and repair "
        "it: y = w x + b on every rank, where w and x are cut by inputs.",
        check_row_parallel_layer,
        (
            "run it on 2 ranks with w = 0: what is y?",
            "every rank adds the whole bias to its part of the sum.",
        ),
        row_parallel_layer,
        given=row_parallel_layer_with_the_bug,
    ),
]
