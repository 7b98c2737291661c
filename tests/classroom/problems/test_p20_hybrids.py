"""Rounds, rows, groups, axes and a clipped gradient: answers that were really likely."""

import itertools
import math

import torch

from course.classroom.problems.p20_hybrids import (
    choose_axes,
    clip_gradients,
    clip_gradients_with_the_bug,
    group_of,
    show_rows,
)
from course.collectives import all_gather, all_reduce, broadcast, gather
from tests.classroom.gallery import Gallery, gallery_tests

# The rows of a round


def rows_stub(comm, x, turn):
    """The rows that all ranks see in round `turn` of scheme (c)."""
    ...


def rows_by_messages(comm, x, turn):
    mine = x.tensor_split(comm.size)[turn]
    shown = [torch.empty_like(mine) for _ in range(comm.size)]
    shown[comm.rank] = mine
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    sends = [comm.isend(mine, rank) for rank in others]
    for rank in others:
        comm.recv(shown[rank], rank)
    for send in sends:
        send.wait()
    return torch.cat(shown)


def all_rows(comm, x):
    parts = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, parts, x)
    return parts


def all_at_once(comm, x, turn):
    return torch.cat(all_rows(comm, x))


def one_ranks_rows(comm, x, turn):
    shown = x.clone()
    broadcast(comm, shown, turn)
    return shown


def part_of_the_rank(comm, x, turn):
    parts = [torch.empty_like(part) for part in x.tensor_split(comm.size)]
    all_gather(comm, parts, x.tensor_split(comm.size)[comm.rank])
    return torch.cat(parts)


def own_rows_only(comm, x, turn):
    return x.tensor_split(comm.size)[turn]


def rows_added_up(comm, x, turn):
    mine = x.tensor_split(comm.size)[turn].clone()
    all_reduce(comm, mine)
    return mine


def rows_in_a_stack(comm, x, turn):
    parts = [part.tensor_split(comm.size)[turn] for part in all_rows(comm, x)]
    return torch.stack(parts)


def own_rows_first(comm, x, turn):
    parts = show_rows(comm, x, turn).chunk(comm.size)
    return torch.cat([*parts[comm.rank :], *parts[: comm.rank]][::-1])


def everything_is_sent(comm, x, turn):
    return torch.cat([part.tensor_split(comm.size)[turn] for part in all_rows(comm, x)])


def by_way_of_rank_0(comm, x, turn):
    mine = x.tensor_split(comm.size)[turn]
    parts = [torch.empty_like(mine) for _ in range(comm.size)]
    gather(comm, mine, parts if comm.rank == 0 else None)
    shown = torch.cat(parts)
    broadcast(comm, shown)
    return shown


def rows_changed(comm, x, turn):
    shown = show_rows(comm, x, turn)
    x.zero_()
    return shown


def no_rows(comm, x, turn):
    show_rows(comm, x, turn)


def rows_of_another_round(comm, x, turn):
    return show_rows(comm, x, (turn + 1) % comm.size)


# The group


def group_stub(rank, along, sizes):
    """The ranks that are in one group with `rank` along an axis."""
    ...


def places(rank, sizes):
    return list(itertools.product(*map(range, sizes.values())))[rank]


def group_by_places(rank, along, sizes):
    """Every rank whose place is the same along all other axes."""
    axis, group, other = list(sizes).index(along), [], 0
    while True:
        try:
            here, there = list(places(rank, sizes)), list(places(other, sizes))
        except IndexError:
            return tuple(group)
        here[axis] = there[axis]
        group += [other] if here == there else []
        other += 1


def first_axis_fastest(rank, along, sizes):
    return group_of(rank, along, dict(reversed(sizes.items())))


def in_the_order_of_names(rank, along, sizes):
    return group_of(rank, along, dict(sorted(sizes.items())))


def group_as_a_range(rank, along, sizes):
    first, *others = group_of(rank, along, sizes)
    step = others[0] - first if others else 1
    return range(first, first + step * sizes[along], step)


def group_as_a_tensor(rank, along, sizes):
    ranks = torch.arange(math.prod(sizes.values())).view(*sizes.values())
    place = list(map(int, (ranks == rank).nonzero()[0]))
    place[list(sizes).index(along)] = slice(None)
    return ranks[tuple(place)]


def without_itself(rank, along, sizes):
    return [other for other in group_of(rank, along, sizes) if other != rank]


def same_place(rank, along, sizes):
    axis, count = list(sizes).index(along), 1
    for size in sizes.values():
        count *= size
    return [r for r in range(count) if places(r, sizes)[axis] == places(rank, sizes)[axis]]


def consecutive(rank, along, sizes):
    return [rank // sizes[along] * sizes[along] + place for place in range(sizes[along])]


def from_itself_on(rank, along, sizes):
    members = group_of(rank, along, sizes)
    return [rank + member - members[0] for member in members]


def from_the_last_one_down(rank, along, sizes):
    return group_of(rank, along, sizes)[::-1]


def only_itself(rank, along, sizes):
    return [rank]


def how_many(rank, along, sizes):
    return sizes[along]


# The axes


def axes_stub(ranks, per_server, weights, card_bytes):
    """(data, pipeline, tensor)."""
    ...


def axes_step_by_step(ranks, per_server, weights, card_bytes):
    parts = next(n for n in range(1, ranks + 1)
                 if ranks % n == 0 and 12 * weights <= n * card_bytes)  # fmt: skip
    tensor = max(n for n in range(1, parts + 1) if parts % n == 0 and per_server % n == 0)
    return [ranks // parts, parts // tensor, tensor]


def axes_as_a_tensor(*case):
    return torch.tensor(axes_step_by_step(*case))


def data_alone(ranks, per_server, weights, card_bytes):
    return ranks, 1, 1


def tensor_alone(ranks, per_server, weights, card_bytes):
    return 1, 1, ranks


def whole_servers(ranks, per_server, weights, card_bytes):
    return ranks // per_server, 1, per_server


def stages_alone(ranks, per_server, weights, card_bytes):
    data, pipeline, tensor = choose_axes(ranks, per_server, weights, card_bytes)
    return data, pipeline * tensor, 1


def one_server(ranks, per_server, weights, card_bytes):
    return 1, 1, per_server


def without_momentum(ranks, per_server, weights, card_bytes):
    return choose_axes(ranks, per_server, int(8 * weights) // 12, card_bytes)


def no_end_of_copies(ranks, per_server, weights, card_bytes):
    return float("inf"), 1, 1


def how_many_parts(ranks, per_server, weights, card_bytes):
    return 12 * weights / card_bytes


# The clipped gradient


def clip_by_all_gather(comm, cut, whole, largest):
    mine = torch.linalg.vector_norm(torch.cat([g.flatten() for g in cut])).square().view(1)
    squares = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, squares, mine)
    norm = (sum(squares)[0] + sum((g**2).sum() for g in whole)) ** 0.5
    if norm > largest:
        for g in cut + whole:
            g.mul_(largest / norm)
    return norm.item()


def square_of(gradients):
    return sum(gradient.square().sum() for gradient in gradients)


def all_squares_summed(comm, cut, whole, largest):
    square = square_of(cut + whole)
    all_reduce(comm, square)
    return square.sqrt()


def cut_ones_only(comm, cut, whole, largest):
    square = square_of(cut)
    all_reduce(comm, square)
    return square.sqrt()


def sum_of_norms(comm, cut, whole, largest):
    norm = square_of(cut + whole).sqrt()
    all_reduce(comm, norm)
    return norm


def largest_of_norms(comm, cut, whole, largest):
    norm = square_of(cut + whole).sqrt()
    all_reduce(comm, norm, "max")
    return norm


def mean_of_squares(comm, cut, whole, largest):
    square = square_of(cut)
    all_reduce(comm, square, "mean")
    return (square + square_of(whole)).sqrt()


def root_forgotten(comm, cut, whole, largest):
    return clip_gradients(comm, cut, whole, largest) ** 2


def mean_of_norms(comm, cut, whole, largest):
    norm = square_of(cut + whole).sqrt()
    all_reduce(comm, norm, "mean")
    return norm


def always_scaled(comm, cut, whole, largest):
    square = square_of(cut)
    all_reduce(comm, square)
    norm = (square + square_of(whole)).sqrt()
    for gradient in cut + whole:
        gradient *= largest / norm
    return norm


def not_in_place(comm, cut, whole, largest):
    square = square_of(cut)
    all_reduce(comm, square)
    norm = (square + square_of(whole)).sqrt()
    cut = [gradient * min(1, largest / norm) for gradient in cut]
    return norm


def scaled_twice(comm, cut, whole, largest):
    norm = clip_gradients(comm, cut, whole, largest)
    for gradient in cut + whole:
        gradient *= min(1, largest / norm)
    return norm


def norm_kept_back(comm, cut, whole, largest):
    clip_gradients(comm, cut, whole, largest)


def norm_after_clipping(comm, cut, whole, largest):
    return min(clip_gradients(comm, cut, whole, largest).item(), largest)


def local_norm_reported(comm, cut, whole, largest):
    local = square_of(cut + whole).sqrt()
    clip_gradients(comm, cut, whole, largest)
    return local


def gradients_gathered(comm, cut, whole, largest):
    for gradient in cut:
        most = gradient[:10]  # as many on every rank
        parts = [torch.empty_like(most) for _ in range(comm.size)]
        all_gather(comm, parts, most)
    return clip_gradients(comm, cut, whole, largest)


GALLERIES = [
    Gallery("round_megabytes", ..., [4.128768, "4.13", 4.1, 7 * 16 * 9216 * 4 / 1e6], {
        "a float32 number has 4 bytes": 1.032192,
        "megabytes were asked for": 4128768,
        "its own rows a rank has already": 4.718592,
        "that is what it sends in all 8 rounds": 33.030144,
        "in a round a rank shows an eighth of its images": 37.748736,
        "that is one copy of 16 images": 0.589824,
        "that is there and back": 8.257536,
        "a megabyte is a million bytes here": 3.9375,
        "how many images does a rank show in a round": 5.0,
        "a number is wanted": "four",
    }),
    Gallery("show_rows", rows_stub, [show_rows, rows_by_messages], {
        "that is scheme (a)": all_at_once,
        "that is scheme (b)": one_ranks_rows,
        "the part that has the number of the rank": part_of_the_rank,
        "has only its own rows": own_rows_only,
        "adds rows up": rows_added_up,
        "has a stack of the ranks' rows": rows_in_a_stack,
        "has the right rows in another order": own_rows_first,
        "sends 576 bytes": everything_is_sent,
        "sends 384 bytes": by_way_of_rank_0,
        "has changed its own rows": rows_changed,
        "should return rows": no_rows,
        "other numbers": rows_of_another_round,
    }),
    Gallery("group_of", group_stub,
            [group_of, group_by_places, group_as_a_range, group_as_a_tensor], {
        "of {'tensor': 2, 'data': 3} you say 0, 2, 4": in_the_order_of_names,
        "here the first axis is the fastest": first_axis_fastest,
        "the rank itself belongs to its group": without_itself,
        "these have the same place along that axis": same_place,
        "consecutive ranks are a group of the last axis alone": consecutive,
        "a group begins at its rank with place 0": from_itself_on,
        "in the order of ranks, please": from_the_last_one_down,
        "write down where each rank is": only_itself,
        "a group is a list of ranks": how_many,
    }),
    Gallery("choose_axes", axes_stub, [choose_axes, axes_step_by_step, axes_as_a_tensor], {
        "leaves 48.0 GB on each card": data_alone,
        "tensor groups that do not lie inside a server": tensor_alone,
        "cut no finer than you must": whole_servers,
        "a pipeline of 1 is enough": stages_alone,
        "does not make 16 ranks": one_server,
        "data inf x": no_end_of_copies,
        "data 8 x pipeline 1 x tensor 2 leaves 24.0 GB": without_momentum,
        "axes are three numbers": how_many_parts,
    }),
    Gallery("clip_gradients", clip_gradients_with_the_bug, [clip_gradients, clip_by_all_gather], {
        "scales by another factor, and what all have alike is not alike": local_norm_reported,
        "alike count 3 times": all_squares_summed,
        "without the gradients that all have alike": cut_ones_only,
        "the sum of the ranks' norms": sum_of_norms,
        "the largest of the ranks' norms": largest_of_norms,
        "the parts of a vector are no samples": mean_of_squares,
        "the square of the norm": root_forgotten,
        "which squares are summed over ranks": mean_of_norms,
        "shorter than `largest`": always_scaled,
        "not scaled in place": not_in_place,
        "another factor than largest / norm": scaled_twice,
        "returns nothing": norm_kept_back,
        "returns the norm after clipping": norm_after_clipping,
        "gradients need not cross": gradients_gathered,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
