"""Borders, intervals, a pair of cut layers, grids and a bias: answers that were really likely."""

import pytest
import torch

from course.classroom.problems import Wrong
from course.classroom.problems.p16_model_parallel import (
    check_pair_of_layers,
    needed_interval,
    pair_of_layers,
    row_parallel_layer,
    row_parallel_layer_with_the_bug,
)
from course.collectives import all_gather, all_reduce, all_to_all, broadcast, gather, reduce
from tests.classroom.gallery import Gallery, gallery_tests

# The interval


def interval_stub(o0, o1, kernel, stride=1, padding=0, dilation=1):
    """The interval (start, stop) of places that the windows o0 to o1 - 1 see."""
    ...


def interval_by_places(o0, o1, kernel, stride=1, padding=0, dilation=1):
    seen = [o * stride - padding + k * dilation for o in range(o0, o1) for k in range(kernel)]
    return [min(seen), max(seen) + 1]


def stop_is_seen(*case):
    first, stop = needed_interval(*case)
    return first, stop - 1


def one_too_far(*case):
    first, stop = needed_interval(*case)
    return first, stop + 1


def one_window_more(o0, o1, *rest):
    return needed_interval(o0, o1 + 1, *rest)


def without_stride(o0, o1, kernel, stride=1, padding=0, dilation=1):
    return needed_interval(o0, o1, kernel, 1, padding, dilation)


def without_padding(o0, o1, kernel, stride=1, padding=0, dilation=1):
    return needed_interval(o0, o1, kernel, stride, 0, dilation)


def padding_to_the_right(o0, o1, kernel, stride=1, padding=0, dilation=1):
    return needed_interval(o0, o1, kernel, stride, -padding, dilation)


def without_dilation(o0, o1, kernel, stride=1, padding=0, dilation=1):
    return needed_interval(o0, o1, kernel, stride, padding, 1)


def inside_the_image(*case):
    first, stop = needed_interval(*case)
    return max(first, 0), stop


def first_window_only(o0, o1, *rest):
    return needed_interval(o0, o0 + 1, *rest)


def its_start_only(*case):
    return needed_interval(*case)[0]


# The pair


def pair_stub(comm, w, v, x):
    """v relu(w x) on every rank."""
    ...


def pair_by_reduce_and_broadcast(comm, w, v, x):
    w, v = w.tensor_split(comm.size)[comm.rank], v.tensor_split(comm.size, 1)[comm.rank]
    y = v @ torch.relu(w @ x)
    reduce(comm, y)
    broadcast(comm, y)
    return y


def rest_to_the_last(comm, w, v, x):
    size = len(w) // comm.size
    mine = slice(comm.rank * size, None if comm.rank == comm.size - 1 else (comm.rank + 1) * size)
    y = v[:, mine] @ torch.relu(w[mine] @ x)
    all_reduce(comm, y)
    return y


def own_part(comm, w, v, x):
    w, v = w.tensor_split(comm.size)[comm.rank], v.tensor_split(comm.size, 1)[comm.rank]
    return v @ torch.relu(w @ x)


def gathered_at_rank_0(comm, w, v, x):
    y = own_part(comm, w, v, x)
    parts = [torch.empty_like(y) for _ in range(comm.size)] if comm.rank == 0 else None
    gather(comm, y, parts)
    y = sum(parts) if comm.rank == 0 else y
    broadcast(comm, y)
    return y


def each_to_all(comm, w, v, x):
    y = own_part(comm, w, v, x)
    parts = [torch.empty_like(y) for _ in range(comm.size)]
    all_to_all(comm, parts, [y] * comm.size)
    return sum(parts)


def whole_product_image_by_image(comm, w, v, x):
    return torch.stack([v @ torch.relu(w @ image) for image in x.T], dim=1)


def whole_product(comm, w, v, x):
    y = v @ torch.relu(w @ x) / comm.size
    all_reduce(comm, y)
    return y


def sum_of_whole_products(comm, w, v, x):
    y = v @ torch.relu(w @ x)
    all_reduce(comm, y)
    return y


def own_part_only(comm, w, v, x):
    w, v = w.tensor_split(comm.size)[comm.rank], v.tensor_split(comm.size, 1)[comm.rank]
    return v @ torch.relu(w @ x)


def no_relu(comm, w, v, x):
    w, v = w.tensor_split(comm.size)[comm.rank], v.tensor_split(comm.size, 1)[comm.rank]
    y = v @ (w @ x)
    all_reduce(comm, y)
    return y


def mean_of_the_parts(comm, w, v, x):
    w, v = w.tensor_split(comm.size)[comm.rank], v.tensor_split(comm.size, 1)[comm.rank]
    y = v @ torch.relu(w @ x)
    all_reduce(comm, y, "mean")
    return y


def relu_at_the_end(comm, w, v, x):
    return torch.relu(pair_of_layers(comm, w, v, x))


def rest_left_out(comm, w, v, x):
    size = len(w) // comm.size
    mine = slice(comm.rank * size, (comm.rank + 1) * size)
    y = v[:, mine] @ torch.relu(w[mine] @ x)
    all_reduce(comm, y)
    return y


def relu_of_a_part(comm, w, v, x):
    """w cut by inputs: what is rectified is a part of a sum."""
    w, x = w.tensor_split(comm.size, 1)[comm.rank], x.tensor_split(comm.size)[comm.rank]
    y = torch.relu(v) @ torch.relu(w @ x)
    all_reduce(comm, y)
    return y


def hidden_neurons_gathered(comm, w, v, x):
    """Every rank has all hidden neurons, and a part of the outputs, which are gathered as well."""
    mine = torch.relu(w.tensor_split(comm.size)[comm.rank] @ x)
    hidden = [torch.empty(len(part), 2).double() for part in w.tensor_split(comm.size)]
    all_gather(comm, hidden, mine)
    own = v.tensor_split(comm.size)[comm.rank] @ torch.cat(hidden)
    parts = [torch.empty(len(part), 2).double() for part in v.tensor_split(comm.size)]
    all_gather(comm, parts, own)
    return torch.cat(parts)


def nothing_comes_back(comm, w, v, x):
    pair_of_layers(comm, w, v, x)


# The grid


def grid_stub(height, width, ranks, window):
    """The grid (down, across) for which the fewest pixels are fetched."""
    ...


def grid_by_regions(height, width, ranks, window):
    """What all ranks together see, pixels that several of them see counted for each."""
    grids = [(down, ranks // down) for down in range(1, ranks + 1) if ranks % down == 0]
    more = window - 1
    return min(grids, key=lambda grid: (height + (grid[0] - 1) * more)
               * (width + (grid[1] - 1) * more))  # fmt: skip


def grid_by_cuts(height, width, ranks, window):
    grids = [(down, ranks // down) for down in range(1, ranks + 1) if ranks % down == 0]
    return min(grids, key=lambda grid: (grid[0] - 1) * width + (grid[1] - 1) * height)


def turned(height, width, ranks, window):
    return grid_by_regions(width, height, ranks, window)


def square_grid(height, width, ranks, window):
    down = max(n for n in range(1, ranks + 1) if ranks % n == 0 and n * n <= ranks)
    return down, ranks // down


def tiles_in_parts(height, width, ranks, window):
    """Square tiles, be the sides of the grid whole or not."""
    down = (ranks * height / width) ** 0.5
    return down, ranks / down


def strips(height, width, ranks, window):
    return ranks, 1


def not_all_ranks(height, width, ranks, window):
    side = int(ranks**0.5)
    return side, side


def number_of_tiles(height, width, ranks, window):
    return ranks


# The bias


def bias_of_one_rank(comm, w, b, x):
    y = w @ x + (b if comm.rank == 0 else 0)
    all_reduce(comm, y)
    return y


def bias_in_parts(comm, w, b, x):
    y = w @ x + b / comm.size
    all_reduce(comm, y)
    return y


def bias_before_the_sum(comm, w, b, x):
    y = w @ x
    y = y + b
    all_reduce(comm, y)
    return y


def bias_forgotten(comm, w, b, x):
    y = w @ x
    all_reduce(comm, y)
    return y


def bias_changed(comm, w, b, x):
    b /= comm.size
    y = w @ x + b
    all_reduce(comm, y)
    return y


def not_summed(comm, w, b, x):
    return w @ x + b


def not_returned(comm, w, b, x):
    row_parallel_layer(comm, w, b, x)


def summed_twice(comm, w, b, x):
    y = w @ x
    for _ in range(8):
        all_reduce(comm, y)
        y /= comm.size
    return y * comm.size + b


GALLERIES = [
    Gallery("border_megabytes", ..., [6.95, "6.946", 4 * 96 * 8 * 2261 / 1e6], {
        "a float32 number has 4 bytes": 1.7364,
        "there are 96 images in a batch": 0.07235,
        "each of the 8 maps has a border": 0.86822,
        "megabytes were asked for": 6945792,
        "and not 2**20": 6.624,
        "a byte has 8 of them": 55.57,
        "its own tile a rank has already": 14.6258,
        "the corners are needed, too": 5.8368,
        "reaches 19 beyond it": 7.3728,
        "not on both sides": 16.1096,
        "how many pixels more than its own does a rank need": 3.3,
        "a number is wanted": "seven",
    }),
    Gallery("needed_interval", interval_stub, [needed_interval, interval_by_places], {
        "stop is the first place that is not seen any more": stop_is_seen,
        "stop is one too far": one_too_far,
        "the last window is number o1 - 1": one_window_more,
        "windows are `stride` places apart": without_stride,
        "the first window begins before the image": without_padding,
        "padding moves windows to the left": padding_to_the_right,
        "the places that a window sees are d apart": without_dilation,
        "they are the padding": inside_the_image,
        "try one window": first_window_only,
        "an interval is a pair": its_start_only,
    }),
    Gallery("pair_of_layers", pair_stub, [
        pair_of_layers, pair_by_reduce_and_broadcast, rest_to_the_last, gathered_at_rank_0,
        each_to_all,
    ], {
        "multiplies with more than its part of the weights": whole_product,
        "what is summed must be a part on each rank": sum_of_whole_products,
        "only what its own hidden neurons give": own_part_only,
        "the relu between the layers is missing": no_relu,
        "has the mean of the parts": mean_of_the_parts,
        "has none of its own": relu_at_the_end,
        "be there a rest or not": rest_left_out,
        "relu taken of whole sums only": relu_of_a_part,
        "hidden neurons need not cross": hidden_neurons_gathered,
        "should return y": nothing_comes_back,
    }),
    Gallery("best_grid", grid_stub, [grid_by_regions], {
        "at each crossing of two cuts": grid_by_cuts,
        "may be in the wrong order": turned,
        "The tiles should be square, not the grid": square_grid,
        "Which sides of a tile cost": strips,
        "one for each rank": not_all_ranks,
        "counted in whole numbers": tiles_in_parts,
        "a grid is a pair": number_of_tiles,
    }),
    Gallery("row_parallel_layer", row_parallel_layer_with_the_bug,
            [row_parallel_layer, bias_of_one_rank, bias_in_parts], {
        "adds the bias 3 times": bias_before_the_sum,
        "has no bias": bias_forgotten,
        "has changed b itself": bias_changed,
        "what may be summed over ranks": not_summed,
        "should return y": not_returned,
        "one all-reduce is enough": summed_twice,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_products_of_a_matrix_and_a_vector_are_counted():
    with pytest.raises(Wrong, match="more than its part of the weights"):
        check_pair_of_layers(whole_product_image_by_image)
