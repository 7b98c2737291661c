"""Exercises of notebook 17: the rank that owns an output, the way back of a halo exchange, how deep
into a network tiles are worth while, a halo without its corners."""

from bisect import bisect_left, bisect_right

import torch
from torch.nn.functional import pad

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close, compare
from course.classroom.problems import Exercise, Wrong
from course.parallel.array import Box, evenly

HALOS = [(2, (5, 3, 4)), (2, (4,)), (1, (4, 6)), (3, (3, 4, 3, 5))]  # width; numbers of each rank
GRIDS = {(2, 3): (5, 8), (1, 3): (4, 8), (3, 1): (7, 3), (1, 1): (3, 4)}  # and the image's shape
WINDOWS = [((0, 8, 16), 3, 1, 1), ((0, 5, 9, 16), 3, 2, 1), ((0, 8, 16), 2), ((0, 6), 5),
           ((0, 5, 9, 16), 3, 1, 3), ((0, 4, 16), 3, 1, 0, 3), ((0, 8, 16), 4, 2, 3),
           ((0, 2, 4, 6), 4, 1, 5, 2)]  # fmt: skip
NETWORKS = [(512, 8, 7, 0.3), (4096, 8, 9, 0.25), (512, 4, 3, 0.5), (256, 16, 8, 1.3),
            (1024, 2, 12, 1000.0), (64, 8, 5, 0.4), (512, 8, 7, 0.1), (2048, 16, 9, 0.54),
            (128, 16, 3, 0.2), (64, 8, 3, 0.5625), (60, 7, 4, 0.9), (60, 7, 4, 0.5)]  # fmt: skip


def owner_of_output(o, cuts, kernel, stride=1, padding=0, dilation=1):
    """The rank that owns the middle of window o, where rank r has the places cuts[r] to
    cuts[r + 1] - 1."""
    middle = o * stride - padding + dilation * (kernel - 1) / 2
    rank = bisect_right(cuts, middle) - 1
    return min(max(rank, 0), len(cuts) - 2)


def outputs(cuts, kernel, stride=1, padding=0, dilation=1) -> int:
    """How many windows there are."""
    return (cuts[-1] + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def everybody(answer):
    """An answer's owners of all outputs of all WINDOWS.  Raises Wrong for what is no number."""

    def owner(o, case):
        found = function(answer)(o, *case)
        if found is None:
            raise Wrong(f"nothing came back for o = {o}, cuts = {case[0]}: every output has an "
                        "owner, be its middle in the image or beyond.")  # fmt: skip
        return number(found)

    def owners():
        found = [owner(o, case) for case in WINDOWS for o in range(outputs(*case))]
        return torch.tensor(found, dtype=torch.float64)

    return owners


def with_others(**changed):
    """The owner if some options were others."""

    def owner(o, cuts, kernel, stride=1, padding=0, dilation=1):
        options = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
        return owner_of_output(o, cuts, **{**options, **changed})

    return owner


def by_place(chosen):
    """The owner of another place of the window than its middle."""

    def owner(o, cuts, kernel, stride=1, padding=0, dilation=1):
        place = o * stride - padding + chosen(dilation, kernel)
        return min(max(bisect_right(cuts, place) - 1, 0), len(cuts) - 2)

    return owner


def unclipped(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return bisect_right(cuts, o * stride - padding + dilation * (kernel - 1) / 2) - 1


def place_of_the_cut_before(o, cuts, kernel, stride=1, padding=0, dilation=1):
    middle = o * stride - padding + dilation * (kernel - 1) / 2
    return min(max(bisect_left(cuts, middle) - 1, 0), len(cuts) - 2)


def by_padding_inwards(o, cuts, kernel, stride=1, padding=0, dilation=1):
    return owner_of_output(o, cuts, kernel, stride, -padding, dilation)


OWNERS = [
    (with_others(stride=1), "windows are `stride` places apart: window o begins at o * stride - "
     "padding."),
    (with_others(padding=0), "with padding, the first window begins before the image."),
    (by_padding_inwards, "padding lies around the image: window 0 begins ahead of place 0, and not "
     "behind it."),
    (with_others(dilation=1), "with a dilation d, a window reaches over d * (kernel - 1) + 1 "
     "places."),
    (with_others(kernel=1, stride=1, padding=0), "o counts windows, and cuts count places."),
    (by_place(lambda d, k: 0), "that is the owner of the first place that the window sees."),
    (by_place(lambda d, k: d * (k - 1)), "that is the owner of the last place that it sees."),
    (by_place(lambda d, k: d * k // 2), "from the first place that a window sees to its last, it "
     "is dilation * (kernel - 1): the middle is half as far."),
    (by_place(lambda d, k: d * (k // 2)), "a window of an even kernel has its middle between two "
     "places: if the cut is there, too, it belongs to the rank before the cut."),
    (by_place(lambda d, k: (d * (k - 1) + 1) // 2), "a middle between two places is not rounded "
     "up: where the cut is there, too, it belongs to the rank before the cut."),
    (place_of_the_cut_before, "place cuts[r + 1] is the first one of rank r + 1: only a middle "
     "ahead of it belongs to rank r."),
    (unclipped, "a middle beyond the image belongs to the rank at that edge."),
]  # fmt: skip


def check_owner_of_output(answer):
    slips = [(everybody(slip), sentence) for slip, sentence in OWNERS]
    compare(everybody(answer), everybody(owner_of_output), [()], slips,
            otherwise="which places does window o see, and where is their middle?")  # fmt: skip
    return "so each output has one owner, for any kernel, stride, padding, dilation and cut."


def halo_adjoint(comm, slope, reach):
    """The slope in this rank's own numbers [n], of `slope` [reach + n + reach] in its numbers with
    the halos on both sides."""
    own = slope[reach:-reach].clone()
    sides = (
        (comm.rank - 1, slope[:reach], own[:reach]),
        (comm.rank + 1, slope[-reach:], own[-reach:]),
    )
    for neighbour, halo, edge in sides:
        if 0 <= neighbour < comm.size:
            back = torch.empty_like(halo)
            comm.exchange(halo, neighbour, back, neighbour)
            edge += back
    return own


def use_adjoint(comm, answer, lengths, reach):
    """The answer's slope, the right one, that of its own numbers alone, and some slips."""
    chance = torch.Generator().manual_seed(len(lengths))
    slopes = [torch.randn(n + 2 * reach, generator=chance, dtype=torch.float64) for n in lengths]
    mine = slopes[comm.rank]
    own = mine[reach:-reach]
    back = [torch.zeros(reach).double() if not 0 <= comm.rank + side < comm.size
            else slopes[comm.rank + side][at] for side, at in
            ((-1, slice(-reach, None)), (1, slice(0, reach)))]  # fmt: skip
    ends = [torch.zeros(reach).double() if not 0 <= comm.rank + side < comm.size
            else slopes[comm.rank + side][at] for side, at in
            ((-1, slice(-2 * reach, -reach)), (1, slice(reach, 2 * reach)))]  # fmt: skip
    got = answer(comm, mine.clone(), reach)
    slips = slips_of_adjoint(own, back, mine)
    slips.append((added(own, *ends), "gets the edges of its neighbours' own numbers: what goes "
                  "back is the slope of the halo."))  # fmt: skip
    return got, added(own, *back), own, slips


def added(own, before, behind, sign=1):
    """`own` with what came back added to its edges."""
    whole = own.clone()
    whole[: len(before)] += sign * before
    whole[-len(behind) :] += sign * behind
    return whole


def slips_of_adjoint(own, back, mine):
    """(a wrong slope, what is wrong with it), in the order in which they are looked for."""
    reach, copied, beside = len(back[0]), own.clone(), own.clone()
    copied[:reach], copied[-reach:] = back
    for edge, came in zip((beside[:reach], beside[-reach:]), back):
        edge.copy_(came if came.any() else edge)  # nothing comes where nobody is
    overwrites = "overwrites its own slopes: add, since both ranks have used that number."
    return [
        (own, "what its numbers have become in the halos of its neighbours is missing."),
        (copied, overwrites),
        (beside, overwrites),
        (added(own, mine[:reach], mine[-reach:]),
         "adds its own halos: they are slopes of its neighbours' numbers, and go to them."),
        (added(own, *reversed(back)),
         "adds what the left neighbour sends on the right side, or the other way round."),
        (added(own, *(each.flip(0) for each in back)),
         "adds what comes back in the reverse order: a halo is no mirror."),
        (added(own, *back, sign=2), "adds what comes back twice."),
    ]  # fmt: skip


def check_halo_adjoint(answer):
    for reach, lengths in HALOS:
        ranks = len(lengths)
        outcomes, trace = on_ranks(use_adjoint, ranks, function(answer), lengths, reach)
        for rank, (got, right, own, slips) in enumerate(outcomes):
            where = f"on {ranks} rank{'s' * (ranks > 1)} with halos of {reach}, rank {rank}"
            if not isinstance(got, torch.Tensor) or got.shape != own.shape:
                shape = list(getattr(got, "shape", ())) or got
                raise Wrong(f"{where} has {len(own)} numbers of its own, and should return as many "
                            f"slopes, not {shape!r:.40}.")  # fmt: skip
            if close(got, right):
                continue
            for slip, sentence in slips:
                if close(got, slip):
                    raise Wrong(f"{where}: {sentence}")
            raise Wrong(
                f"{where} has another slope: which neighbour has seen which of its numbers?"
            )
        check_halos_alone(ranks, trace, 8 * reach)
    return (
        "<Hx, y> = <x, H^T y> on 1 to 4 ranks, for halos of three widths, and no more travels back "
        "than has come."
    )


def check_halos_alone(ranks, trace, halo_bytes):
    """Refuse more than two halos to a neighbour: one there, for an array's fetch, and one back."""
    for rank, sent in enumerate(trace.sent_bytes):
        neighbours = (rank > 0) + (rank < ranks - 1)
        if ranks > 1 and sent > 2 * neighbours * halo_bytes:  # one rank may send to itself
            raise Wrong(
                f"on {ranks} ranks, rank {rank} sends {sent} bytes: the value is right, but only "
                f"the halos have to go back, {neighbours * halo_bytes} bytes."
            )


def stages_on_tiles(side, across, stages, share):
    """How many stages, from the first on, are computed on across x across tiles."""
    for stage in range(stages):
        tile = side // 2**stage // across
        if tile == 0 or (tile + 2) ** 2 - tile**2 > share * tile**2:
            return stage
    return stages


def all_stages(answer):
    """An answer's number of stages for all NETWORKS.  Raises Wrong for what is no number."""

    def stages():
        found = [number(function(answer)(*network)) for network in NETWORKS]
        return torch.tensor(found, dtype=torch.float64)

    return stages


def counted(fetched, shrink=2, parts=1, strict=False, whole=int):
    """The number of stages by another count of what is fetched, or of a tile's side."""

    def stages_of(side, across, stages, share):
        for stage in range(stages):
            tile = side / shrink**stage / across**parts
            tile = whole(tile)
            too_much = fetched(tile) > share * tile**2
            if tile == 0 or too_much or strict and fetched(tile) == share * tile**2:
                return stage
        return stages

    return stages_of


def border(tile):
    return (tile + 2) ** 2 - tile**2


STAGES = [
    (lambda *case: max(stages_on_tiles(*case) - 1, 0), "stages count from 0: if the last one that "
     "is allowed is number n, there are n + 1 of them."),
    (lambda *case: stages_on_tiles(*case) + 1, "the first stage that fetches more than its share "
     "is not computed on tiles."),
    (counted(border, strict=True), "exactly `share` times its own number is allowed: at most."),
    (counted(border, whole=float), "tiles are made of whole pixels: side // 2**s // across."),
    (counted(border, whole=round), "what does not divide makes no tile larger: side // 2**s // "
     "across, rounded down."),
    (counted(lambda tile: 4 * tile), "the corners are needed, too: a tile fetches 4 t + 4."),
    (counted(lambda tile: 2 * tile + 1), "an inner tile has neighbours on all four sides."),
    (counted(lambda tile: border(tile) * tile), "a tile has t * t pixels of its own, not t."),
    (counted(lambda tile: (tile + 2) ** 2), "its own pixels a rank has already."),
    (counted(border, parts=2), "a side is cut into `across` tiles, and the image into across * "
     "across."),
    (counted(border, shrink=4), "each stage halves the side: of the pixels a quarter is left."),
    (counted(border, shrink=1), "each stage halves the image, and so its tiles."),
    (lambda side, across, stages, share: stages_on_tiles(side, across, 60, share),
     "the network has no more stages than `stages`."),
]  # fmt: skip


def check_stages_on_tiles(answer):
    slips = [(all_stages(slip), sentence) for slip, sentence in STAGES]
    compare(all_stages(answer), all_stages(stages_on_tiles), [()], slips,
            otherwise="how many pixels has an inner tile of stage s, and how many does it "
            "see?")  # fmt: skip
    return "deeper stages are computed by fewer ranks: their images are small by then."


def tile_with_halo(comm, tile, grid):
    """tile [rows, columns] with one pixel more on each side: the neighbours', or 0 at the edges."""
    padded, places = pad(tile, (1, 1, 1, 1)), divmod(comm.rank, grid[1])
    phases = (padded[:, 1:-1], grid[1]), (padded.T, 1)  # rows; then columns, from halo to halo
    for (edges, step), place, count in zip(phases, places, grid):
        sides = (place > 0, -step, 1, 0), (place < count - 1, step, -2, -1)
        for there, ahead, inner, outer in sides:
            if there:
                edge = edges[outer].clone()
                comm.exchange(edges[inner].clone(), comm.rank + ahead, edge, comm.rank + ahead)
                edges[outer] = edge
    return padded


def tile_with_halo_with_the_bug(comm, tile, grid):
    """tile [rows, columns] with one pixel more on each side: the neighbours', or 0 at the edges."""
    padded, places = pad(tile, (1, 1, 1, 1)), divmod(comm.rank, grid[1])
    phases = (padded[:, 1:-1], grid[1]), (padded.T[:, 1:-1], 1)  # own rows, then own columns
    for (edges, step), place, count in zip(phases, places, grid):
        sides = (place > 0, -step, 1, 0), (place < count - 1, step, -2, -1)
        for there, ahead, inner, outer in sides:
            if there:
                edge = edges[outer].clone()
                comm.exchange(edges[inner].clone(), comm.rank + ahead, edge, comm.rank + ahead)
                edges[outer] = edge
    return padded


def use_tile(comm, answer, grid, shape):
    """The answer's tile, the right one, and whether the tile that it was given is as it was."""
    chance = torch.Generator().manual_seed(sum(shape))
    image = torch.randn(shape, generator=chance, dtype=torch.float64)
    box = evenly(shape, grid).box(comm.rank)
    tile = image[box.within(Box.whole(shape))].clone()
    wanted = Box.of(*((start, stop + 2) for start, stop in box.intervals))  # of the padded image
    right = pad(image, (1, 1, 1, 1))[wanted.within(Box.whole(wanted.stops))].clone()
    given = tile.clone()
    return answer(comm, given, grid), right, torch.equal(given, tile)


def check_tile_with_halo(answer):
    for grid, shape in GRIDS.items():
        ranks = grid[0] * grid[1]
        outcomes, trace = on_ranks(use_tile, ranks, function(answer), grid, shape)
        for rank, (got, right, same) in enumerate(outcomes):
            where = f"on a grid of {grid[0]} x {grid[1]}, rank {rank}"
            if not isinstance(got, torch.Tensor) or got.shape != right.shape:
                raise Wrong(f"{where} should return its tile with a border: {list(right.shape)}.")
            if not same:
                raise Wrong(f"{where} has changed the tile that it was given.")
            check_border(where, got, right)
        most = 8 * max(2 * sum(right.shape) for _, right, _ in outcomes)
        if max(trace.sent_bytes) > most:
            raise Wrong("the value is right, but whole tiles travel: only borders have to.")
    return "sides and corners are those of the image, on strips and on a grid of 2 x 3."


def check_border(where, got, right):
    if close(got, right):
        return
    if not close(got[1:-1, 1:-1], right[1:-1, 1:-1]):
        raise Wrong(f"{where} has other numbers in its own tile.")
    corners = torch.zeros_like(right, dtype=bool)
    corners[:: right.shape[0] - 1, :: right.shape[1] - 1] = True
    if not close(got.masked_fill(corners, 0), right.masked_fill(corners, 0)):
        raise Wrong(f"{where} has sides that are wrong: whose pixels are they, and in which order?")
    if not got[corners].any():
        raise Wrong(
            f"{where} has no corner: the neighbour across it owns one pixel that is needed."
        )
    raise Wrong(f"{where} has another corner: it belongs to the neighbour across, and to no other.")


EXERCISES = [
    Exercise(
        "owner_of_output",
        "write owner_of_output(o, cuts, kernel, stride=1, padding=0, dilation=1): the rank that "
        "computes output o of a convolution, which is the owner of the middle of window o.",
        check_owner_of_output,
        (
            "window o begins at place o * stride - padding, and its last place is "
            "dilation * (kernel - 1) farther.",
            "the rank is the last one whose part begins at the middle or before it: "
            "cuts[rank] <= middle.",
            "middles beyond the image: the result is at least 0 and at most len(cuts) - 2.",
        ),
        owner_of_output,
    ),
    Exercise(
        "halo_adjoint",
        "write halo_adjoint(comm, slope, reach): the slope in this rank's own numbers [n], of the "
        "slope [reach + n + reach] in what with_halo has returned.",
        check_halo_adjoint,
        (
            "each rank sends the two ends of `slope` back to the neighbours that own the numbers.",
            "what comes from the left neighbour is added to the first `reach` of its own.",
            "comm.exchange(halo, neighbour, back, neighbour) for both neighbours, where there is "
            "one.",
        ),
        halo_adjoint,
    ),
    Exercise(
        "stages_on_tiles",
        "write stages_on_tiles(side, across, stages, share): how many stages of a network to "
        "compute on across x across tiles, if an inner tile may fetch at most `share` times its "
        "own pixels.",
        check_stages_on_tiles,
        (
            "stage s (from 0) has an image of side // 2**s, and its tiles side // 2**s // across.",
            "with windows of 3 x 3 an inner tile of t x t sees (t + 2) x (t + 2) pixels.",
            "go through the stages, and return at the first one that fetches too much.",
        ),
        stages_on_tiles,
    ),
    Exercise(
        "tile_with_halo",
        "find the bug in tile_with_halo(comm, tile, grid), which is right on strips, and repair "
        "it: the tile with a border of one pixel, the neighbours' or 0 at the edges.",
        check_tile_with_halo,
        (
            "on 2 x 2 ranks: which rank owns the corner of rank 0's border, and does it send it?",
            "after the first phase, the neighbour beside has that pixel in its own border.",
            "so send columns from halo to halo: padded.T, all of it.",
        ),
        tile_with_halo,
        given=tile_with_halo_with_the_bug,
    ),
]
