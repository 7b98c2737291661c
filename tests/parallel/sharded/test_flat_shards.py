"""Parameters side by side, cut wherever the cut comes."""

import contextlib
import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course.comm.errors import PeerLost
from course.parallel.sharded.flat_shards import FlatShards


class Rank:
    """As much of a communicator as a cut needs."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def cut(shapes, p, stage, dtype=torch.float64):
    """The flat shards of each rank, of parameters that count up."""
    flats = []
    for rank in range(p):
        sizes = [torch.Size(shape).numel() for shape in shapes]
        parts = torch.arange(sum(sizes)).to(dtype).split(sizes)
        made = [nn.Parameter(part.view(shape).clone()) for part, shape in zip(parts, shapes)]
        flats.append((made, FlatShards(made, Rank(rank, p), stage, "not here")))
    return flats


SHAPES = st.lists(st.sampled_from([(), (3,), (0,), (2, 3), (7, 1), (1,)]), min_size=1, max_size=6)


@given(SHAPES, st.integers(1, 5), st.sampled_from([1, 3]))
def test_the_shards_of_all_ranks_are_the_parameters(shapes, p, stage):
    flats = cut(shapes, p, stage)
    first = 0
    for number, shape in enumerate(shapes):
        parts = [flat.shards[made[number]].detach() for made, flat in flats]
        size = torch.Size(shape).numel()
        assert torch.cat(parts).tolist() == list(range(first, first + size))
        for rank, (made, flat) in enumerate(flats):
            start, stop = flat.spans[made[number]][rank]
            assert parts[rank].tolist() == list(range(first + start, first + stop))
        first += size
    lengths = [len(flat.own) for _, flat in flats]
    assert max(lengths) - min(lengths) <= 1 and sum(lengths) == first


def test_a_shard_is_a_part_of_the_whole_or_beside_it():
    for stage, dtype, same in ((1, torch.float64, True), (3, torch.float64, False),
                               (1, torch.bfloat16, False)):  # fmt: skip
        for (first, _), flat in cut([(5,), (4,)], 2, stage, dtype):
            shard = flat.shards[first].detach()
            assert shard.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
            memory = shard.untyped_storage()._cdata
            assert (memory == flat.whole.untyped_storage()._cdata) == same


def test_of_halves_that_are_not_trained_there_are_no_more_digits():
    frozen = nn.Parameter(torch.ones(4).bfloat16(), requires_grad=False)
    flat = FlatShards([frozen], Rank(0, 2), 3, "not here")
    assert flat.own.dtype == torch.bfloat16 and not flat.mastered


def test_what_is_freed_takes_no_memory_and_comes_back():
    (first, second), flat = cut([(5,), (2, 2)], 1, 3)[0]
    flat.free()
    assert flat.whole.untyped_storage().nbytes() == 0 and type(first).__name__ == "Freed"
    flat.whole.untyped_storage().resize_(flat.whole.nbytes)
    flat.whole.copy_(flat.own)
    flat.restore()
    assert type(first) is nn.Parameter and second.tolist() == [[5.0, 6.0], [7.0, 8.0]]


class Ring:
    """A ring of which one rank knows what comes to it, or that breaks."""

    def __init__(self, arrives):
        self.rank, self.size, self.nodes, self.arrives = 0, 2, (0, 1), arrives
        self.collective = lambda *_, **__: contextlib.nullcontext()

    def isend(self, x, dst, tag):
        x.numpy()  # as messages do
        return types.SimpleNamespace(wait=lambda: None)

    def recv(self, out, src, tag):
        if self.arrives is None:
            raise PeerLost("rank 1 is gone")
        out.numpy()[:] = self.arrives


def test_what_has_been_gathered_is_whole_and_can_be_freed_again():
    (only,), flat = cut([(5,)], 2, 3)[0]
    for arrives in (3.5, 4.5):
        flat.free()
        flat.gather(Ring(arrives))
        flat.restore()
        assert only.tolist() == [0.0, 1.0, 2.0, arrives, arrives]
    flat.free()
    assert flat.whole.untyped_storage().nbytes() == 0


def test_memory_in_which_a_message_may_still_land_is_not_freed():
    _, flat = cut([(5,)], 2, 3)[0]
    flat.free()
    with pytest.raises(PeerLost):
        flat.gather(Ring(None))
    for _ in range(2):
        flat.free()
        assert flat.whole.untyped_storage().nbytes() == 40
        flat.gather(Ring(3.5))
