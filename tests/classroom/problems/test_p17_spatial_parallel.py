"""Owners, the way back of a halo, depths and corners: answers that were really likely."""

import torch
from torch.nn.functional import pad

from course.classroom.problems.p17_spatial_parallel import (
    WINDOWS,
    halo_adjoint,
    outputs,
    owner_of_output,
    stages_on_tiles,
    tile_with_halo,
    tile_with_halo_with_the_bug,
)
from course.collectives import all_gather
from course.parallel.array import DistributedArray, evenly
from course.parallel.array.distributed_array import told
from course.parallel.spatial.windows import Window
from tests.classroom.gallery import Gallery, gallery_tests

# The owner


def owner_stub(o, cuts, kernel, stride=1, padding=0, dilation=1):
    """The rank that computes output o."""
    ...


def owner_by_halves(o, cuts, kernel, stride=1, padding=0, dilation=1):
    """Twice the middle, in whole numbers; the first cut that is behind it ends the owner's part."""
    twice = 2 * (o * stride - padding) + dilation * (kernel - 1)
    return next((rank for rank, cut in enumerate(cuts[1:-1]) if twice < 2 * cut), len(cuts) - 2)


def owner_without_stride(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return owner_of_output(o, cuts, kernel, 1, padding, dilation)


def owner_without_padding(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return owner_of_output(o, cuts, kernel, stride, 0, dilation)


def owner_without_dilation(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return owner_of_output(o, cuts, kernel, stride, padding)


def owner_of_place_o(o, cuts, kernel, stride=1, padding=0, dilation=1):
    """Dilation is of no use to it, either."""
    return max(rank for rank, cut in enumerate(cuts[:-1]) if cut <= o)


def owner_of_the_first(o, cuts, kernel, stride=1, padding=0, dilation=1):
    first = max(o * stride - padding, 0)
    return max(rank for rank, cut in enumerate(cuts[:-1]) if cut <= first)


def owner_of_the_last(o, cuts, kernel, stride=1, padding=0, dilation=1):
    last = max(o * stride - padding + dilation * (kernel - 1), 0)
    return max(rank for rank, cut in enumerate(cuts[:-1]) if cut <= last)


def owner_by_half_the_kernel(o, cuts, kernel, stride=1, padding=0, dilation=1):
    middle = max(o * stride - padding + dilation * (kernel // 2), 0)
    return max(rank for rank, cut in enumerate(cuts[:-1]) if cut <= middle)


def owner_without_edges(o, cuts, kernel, stride=1, padding=0, dilation=1):
    middle = o * stride - padding + dilation * (kernel - 1) / 2
    return sum(cut <= middle for cut in cuts) - 1


def owner_with_padding_inwards(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return owner_of_output(o, cuts, kernel, stride, -padding, dilation)


def owner_rounded_up(o, cuts, kernel, stride=1, padding=0, dilation=1):
    middle = o * stride - padding + (dilation * (kernel - 1) + 1) // 2
    return min(sum(cut <= middle for cut in cuts[1:]), len(cuts) - 2)


def owner_of_the_cut(o, cuts, kernel, stride=1, padding=0, dilation=1):
    """The first rank whose part ends at the middle or behind it."""
    middle = o * stride - padding + dilation * (kernel - 1) / 2
    return next((rank for rank, cut in enumerate(cuts[1:]) if middle <= cut), len(cuts) - 2)


def owner_by_the_kernel(o, cuts, kernel, stride=1, padding=0, dilation=1):
    middle = o * stride - padding + kernel * dilation // 2
    return min(sum(cut <= middle for cut in cuts[1:]), len(cuts) - 2)


def always_the_first(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return 0


def owner_in_the_image(o, cuts, kernel, stride=1, padding=0, dilation=1):
    """Nothing for a middle beyond the image."""
    middle = o * stride - padding + dilation * (kernel - 1) / 2
    for rank, start in enumerate(cuts[:-1]):
        if start <= middle < cuts[rank + 1]:
            return rank


def the_place_itself(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return f"the owner of {o}"


# The way back


def adjoint_stub(comm, slope, reach):
    """The slope in this rank's own numbers."""
    ...


def adjoint_in_a_circle(comm, slope, reach):
    """What comes over the edge of the image is left out."""
    own, come = slope[reach:-reach].clone(), torch.empty_like(slope[:reach])
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    comm.exchange(slope[-reach:], right, come, left)
    if comm.rank > 0:
        own[:reach] += come
    comm.exchange(slope[:reach], left, come, right)
    if comm.rank < comm.size - 1:
        own[-reach:] += come
    return own


def adjoint_by_handles(comm, slope, reach):
    own = slope[reach:-reach].clone()
    back = [torch.zeros_like(own[:reach]) for _ in range(2)]
    handles = []
    for at, rank, halo in ((0, comm.rank - 1, slope[:reach]), (1, comm.rank + 1, slope[-reach:])):
        if 0 <= rank < comm.size:
            handles += [comm.irecv(back[at], rank), comm.isend(halo, rank)]
    for handle in handles:
        handle.wait()
    own[:reach] += back[0]
    own[-reach:] += back[1]
    return own


def adjoint_by_autograd(comm, slope, reach):
    """The way back of the array's own fetch."""
    lengths = [int(each) for each in comm.gather_texts(str(len(slope) - 2 * reach))]
    ends = [sum(lengths[: rank + 1]) for rank in range(comm.size)]
    layout = evenly((ends[-1],), (comm.size,))._replace(cuts=((0, *ends),))
    x = DistributedArray(comm, torch.zeros(lengths[comm.rank]).to(slope), layout)
    x.local.requires_grad_()
    ((start, stop),) = x.box.intervals
    regions = told(comm, x.box._replace(starts=(start - reach,), stops=(stop + reach,)))
    x.fetch(regions).backward(slope)
    return x.local.grad


def own_numbers_only(comm, slope, reach):
    return slope[reach:-reach].clone()


def halos_of(comm, slope, reach):
    """What comes back from the left and from the right; zeros where nobody is."""
    back = [torch.zeros_like(slope[:reach]) for _ in range(2)]
    for at, rank, halo in ((0, comm.rank - 1, slope[:reach]), (1, comm.rank + 1, slope[-reach:])):
        if 0 <= rank < comm.size:
            comm.exchange(halo, rank, back[at], rank)
    return back


def overwritten(comm, slope, reach):
    own = slope[reach:-reach].clone()
    own[:reach], own[-reach:] = halos_of(comm, slope, reach)
    return own


def overwritten_where_somebody_is(comm, slope, reach):
    own, back = slope[reach:-reach].clone(), halos_of(comm, slope, reach)
    if comm.rank > 0:
        own[:reach] = back[0]
    if comm.rank < comm.size - 1:
        own[-reach:] = back[1]
    return own


def its_own_halos(comm, slope, reach):
    own = slope[reach:-reach].clone()
    own[:reach] += slope[:reach]
    own[-reach:] += slope[-reach:]
    return own


def sides_exchanged(comm, slope, reach):
    own, (left, right) = slope[reach:-reach].clone(), halos_of(comm, slope, reach)
    own[:reach] += right
    own[-reach:] += left
    return own


def edges_sent(comm, slope, reach):
    own, back = slope[reach:-reach].clone(), [torch.zeros_like(slope[:reach]) for _ in range(2)]
    for at, rank in ((0, comm.rank - 1), (1, comm.rank + 1)):
        if 0 <= rank < comm.size:
            comm.exchange((own[:reach], own[-reach:])[at].clone(), rank, back[at], rank)
    own[:reach] += back[0]
    own[-reach:] += back[1]
    return own


def in_a_mirror(comm, slope, reach):
    own, (left, right) = slope[reach:-reach].clone(), halos_of(comm, slope, reach)
    own[:reach] += left.flip(0)
    own[-reach:] += right.flip(0)
    return own


def added_twice(comm, slope, reach):
    own, (left, right) = slope[reach:-reach].clone(), halos_of(comm, slope, reach)
    own[:reach] += 2 * left
    own[-reach:] += 2 * right
    return own


def halos_kept(comm, slope, reach):
    whole = slope.clone()
    whole[reach:-reach] = halo_adjoint(comm, slope, reach)
    return whole


def in_a_circle(comm, slope, reach):
    own = slope[reach:-reach].clone()
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    back = torch.empty_like(slope[:reach])
    comm.exchange(slope[-reach:], right, back, left)
    own[:reach] += back
    comm.exchange(slope[:reach], left, back, right)
    own[-reach:] += back
    return own


def two_for_reach(comm, slope, reach):
    return halo_adjoint(comm, slope, 2)


def everything_gathered(comm, slope, reach):
    lengths = [int(each) for each in comm.gather_texts(str(len(slope)))]
    parts = [torch.empty(length).to(slope) for length in lengths]
    all_gather(comm, parts, slope)
    return halo_adjoint(comm, slope, reach)


# The depth


def stages_stub(side, across, stages, share):
    """How many stages are computed on tiles."""
    ...


def stages_by_a_list(side, across, stages, share):
    tiles = [side // across // 2**stage for stage in range(stages)]
    return sum(tile > 0 and 4 * tile + 4 <= share * tile * tile for tile in tiles)


def last_stage(side, across, stages, share):
    return max(stages_on_tiles(side, across, stages, share) - 1, 0)


def one_stage_more(side, across, stages, share):
    return stages_on_tiles(side, across, stages, share) + 1


def sides_only(side, across, stages, share):
    tiles = [side // across // 2**stage for stage in range(stages)]
    return sum(tile > 0 and 4 * tile <= share * tile * tile for tile in tiles)


def two_sides(side, across, stages, share):
    tiles = [side // across // 2**stage for stage in range(stages)]
    return sum(tile > 0 and 2 * tile + 1 <= share * tile * tile for tile in tiles)


def pixels_against_a_side(side, across, stages, share):
    tiles = [side // across // 2**stage for stage in range(stages)]
    return sum(tile > 0 and 4 * tile + 4 <= share * tile for tile in tiles)


def exactly_refused(side, across, stages, share):
    tiles = [side // across // 2**stage for stage in range(stages)]
    return sum(tile > 0 and 4 * tile + 4 < share * tile * tile for tile in tiles)


def parts_of_pixels(side, across, stages, share):
    tiles = [side / across / 2**stage for stage in range(stages)]
    return sum(4 * tile + 4 <= share * tile * tile for tile in tiles)


def rounded(side, across, stages, share):
    tiles = [round(side / 2**stage / across) for stage in range(stages)]
    return sum(tile > 0 and 4 * tile + 4 <= share * tile * tile for tile in tiles)


def halos_against_the_image(side, across, stages, share):
    sides = [side // 2**stage for stage in range(stages)]
    halos = [across**2 * (4 * (each // across) + 4) for each in sides]
    return sum(each // across > 0 and halo <= share * each**2 for each, halo in zip(sides, halos))


def its_own_counted(side, across, stages, share):
    tiles = [side // across // 2**stage for stage in range(stages)]
    return sum(tile > 0 and (tile + 2) ** 2 <= share * tile * tile for tile in tiles)


def cut_twice(side, across, stages, share):
    return stages_on_tiles(side, across**2, stages, share)


def quarters(side, across, stages, share):
    tiles = [side // 4**stage // across for stage in range(stages)]
    return sum(tile > 0 and 4 * tile + 4 <= share * tile * tile for tile in tiles)


def never_smaller(side, across, stages, share):
    tile = side // across
    return stages if 4 * tile + 4 <= share * tile * tile else 0


def without_end(side, across, stages, share):
    return stages_on_tiles(side, across, 60, share)


def all_of_them(side, across, stages, share):
    return stages


def none_named(side, across, stages, share):
    return "some"


# The corner


def corners_by_themselves(comm, tile, grid):
    """Eight neighbours, each of which sends what is needed of it."""
    padded = pad(tile, (1, 1, 1, 1))
    row, column = divmod(comm.rank, grid[1])
    ahead = {-1: (slice(1, 2), slice(0, 1)), 0: (slice(1, -1),) * 2,
             1: (slice(-2, -1), slice(-1, None))}  # fmt: skip
    handles, landed = [], []
    for down in (-1, 0, 1):
        for across in (-1, 0, 1):
            there = 0 <= row + down < grid[0] and 0 <= column + across < grid[1]
            if there and (down or across):
                rank = (row + down) * grid[1] + column + across
                given = padded[ahead[down][0], ahead[across][0]].clone()
                halo = ahead[down][1], ahead[across][1]
                landed.append((halo, torch.empty_like(padded[halo])))
                handles += [comm.irecv(landed[-1][1], rank), comm.isend(given, rank)]
    for handle in handles:
        handle.wait()
    for halo, values in landed:
        padded[halo] = values
    return padded


def columns_first(comm, tile, grid):
    padded, (row, column) = pad(tile, (1, 1, 1, 1)), divmod(comm.rank, grid[1])
    phases = (padded.T[:, 1:-1], column, grid[1], 1), (padded, row, grid[0], grid[1])
    for lines, place, count, step in phases:
        sides = (place > 0, -step, 1, 0), (place < count - 1, step, -2, -1)
        for there, ahead, inner, outer in sides:
            if there:
                edge = lines[outer].clone()
                comm.exchange(lines[inner].clone(), comm.rank + ahead, edge, comm.rank + ahead)
                lines[outer] = edge
    return padded


def rows_for_columns(comm, tile, grid):
    """Sides as they should be, and corners from where they were if the grid were turned."""
    padded, (row, column) = (
        tile_with_halo_with_the_bug(comm, tile, grid),
        divmod(comm.rank, grid[1]),
    )
    handles, landed = [], []
    for down in (-1, 1):
        for across in (-1, 1):
            if 0 <= row + down < grid[0] and 0 <= column + across < grid[1]:
                rank = (row + down) * grid[0] + column + across
                corner = padded[1 if down < 0 else -2, 1 if across < 0 else -2].clone()
                place = 0 if down < 0 else -1, 0 if across < 0 else -1
                landed.append((place, torch.zeros_like(corner)))
                handles += [comm.irecv(landed[-1][1], rank), comm.isend(corner, rank)]
    for handle in handles:
        handle.wait()
    for place, value in landed:
        padded[place] = value
    return padded


def tile_alone(comm, tile, grid):
    return tile


def zeros_around(comm, tile, grid):
    return pad(tile, (1, 1, 1, 1))


def corner_of_its_own(comm, tile, grid):
    padded = tile_with_halo(comm, tile, grid)
    for row in (0, -1):
        for column in (0, -1):
            padded[row, column] = tile[row, column]
    return padded


def half_the_tile(comm, tile, grid):
    return tile_with_halo(comm, tile, grid) / 2


def given_tile_changed(comm, tile, grid):
    padded = tile_with_halo(comm, tile, grid)
    tile += 1
    return padded


def whole_tiles(comm, tile, grid):
    shapes = comm.gather_texts(f"{tile.shape[0]} {tile.shape[1]}")
    parts = [torch.empty(*map(int, shape.split())).to(tile) for shape in shapes]
    for _ in range(3):
        all_gather(comm, parts, tile)
    return tile_with_halo(comm, tile, grid)


GALLERIES = [
    Gallery("owner_of_output", owner_stub, [owner_of_output, owner_by_halves], {
        "windows are `stride` places apart": owner_without_stride,
        "the first window begins before the image": owner_without_padding,
        "ahead of place 0": owner_with_padding_inwards,
        "the middle is half as far": owner_by_the_kernel,
        "with a dilation d": owner_without_dilation,
        "o counts windows, and cuts count places": owner_of_place_o,
        "the first place that the window sees": owner_of_the_first,
        "the last place that it sees": owner_of_the_last,
        "has its middle between two places": owner_by_half_the_kernel,
        "is not rounded up": owner_rounded_up,
        "is the first one of rank r + 1": owner_of_the_cut,
        "belongs to the rank at that edge": owner_without_edges,
        "where is their middle": always_the_first,
        "nothing came back for o = ": owner_in_the_image,
        "a number is wanted": the_place_itself,
    }),
    Gallery("halo_adjoint", adjoint_stub,
            [halo_adjoint, adjoint_by_handles, adjoint_by_autograd, adjoint_in_a_circle], {
        "in the halos of its neighbours is missing": own_numbers_only,
        "both ranks have used that number": overwritten,
        "overwrites its own slopes": overwritten_where_somebody_is,
        "adds its own halos": its_own_halos,
        "what the left neighbour sends on the right side": sides_exchanged,
        "the edges of its neighbours' own numbers": edges_sent,
        "a halo is no mirror": in_a_mirror,
        "adds what comes back twice": added_twice,
        "should return as many slopes": halos_kept,
        "halos of 1, rank 0 has 4 numbers of its own": two_for_reach,
        "which neighbour has seen which of its numbers": in_a_circle,
        "only the halos have to go back": everything_gathered,
    }),
    Gallery("stages_on_tiles", stages_stub, [stages_on_tiles, stages_by_a_list], {
        "stages count from 0": last_stage,
        "is not computed on tiles": one_stage_more,
        "exactly `share` times": exactly_refused,
        "made of whole pixels": parts_of_pixels,
        "rounded down": rounded,
        "makes no tile larger": halos_against_the_image,
        "the corners are needed, too": sides_only,
        "neighbours on all four sides": two_sides,
        "a tile has t * t pixels of its own": pixels_against_a_side,
        "its own pixels a rank has already": its_own_counted,
        "a side is cut into `across` tiles": cut_twice,
        "of the pixels a quarter is left": quarters,
        "each stage halves the image, and so its tiles": never_smaller,
        "no more stages than `stages`": without_end,
        "how many pixels has an inner tile": all_of_them,
        "a number is wanted": none_named,
    }),
    Gallery("tile_with_halo", tile_with_halo_with_the_bug,
            [tile_with_halo, columns_first, corners_by_themselves], {
        "should return its tile with a border": tile_alone,
        "has sides that are wrong": zeros_around,
        "has another corner": corner_of_its_own,
        "has other numbers in its own tile": half_the_tile,
        "has changed the tile": given_tile_changed,
        "whole tiles travel": whole_tiles,
        "the ranks wait for one another": rows_for_columns,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_the_owners_are_those_of_the_package():
    for cuts, *window in WINDOWS:
        kernel, stride, padding, dilation = (*window, *(1, 0, 1)[len(window) - 1 :])
        ends = Window(kernel, stride, padding, padding, dilation).cuts(cuts)
        owners = [owner_of_output(o, cuts, *window) for o in range(outputs(cuts, *window))]
        assert [owners.count(rank) for rank in range(len(cuts) - 1)] == [
            b - a for a, b in zip(ends, ends[1:])
        ]
