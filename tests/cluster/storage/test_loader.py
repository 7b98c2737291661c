"""The loader hands out every sample once, in order, goes on where it stopped, and tells of what it
cannot read."""

import copy
import json
import os
import threading

import pytest
import torch

from course.cluster.storage.files import Files
from course.cluster.storage.loader import Loader
from course.cluster.storage.order import epoch_order
from course.cluster.storage.shards import write_shards
from course.worlds import RankError, run
from tests.cluster.storage.pictures import level, write_pictures

COUNT = 23


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(write_pictures(tmp_path_factory.mktemp("pictures"), COUNT), "*.png")


@pytest.fixture(scope="module")
def shards(files, tmp_path_factory):
    return write_shards(files, tmp_path_factory.mktemp("shards") / "4", 4)


def number_of(source):
    return [int(name[-7:-4]) for name in source.names]


def taken(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_epoch_is_in_the_order_of_its_seed(files, shards, workers):
    for source in (files, shards):
        loader = Loader(source, level, 4, seed=3, workers=workers)
        assert len(loader) == 6
        for epoch in range(2):
            order = epoch_order(source.groups, 3, epoch)
            batches = taken(loader)
            assert sum(batches, []) == [number_of(source)[n] for n in order]
            assert [len(batch) for batch in batches] == [3, 4, 4, 4, 4, 4]
            assert (loader.epoch, loader.position) == (epoch + 1, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_it_goes_on_where_it_stopped_with_other_ranks(shards, workers):
    seen = []
    options = {"seed": 1, "workers": workers}
    pair = [Loader(shards, level, 2, rank=rank, ranks=2, **options) for rank in range(2)]
    for loader in pair:
        batches = iter(loader)
        seen += [next(batches).tolist() for _ in range(3)]
        batches.close()
    assert pair[0].state_dict() == pair[1].state_dict()
    state = pair[0].state_dict()
    for rank in range(3):
        loader = Loader(shards, level, 2, rank=rank, ranks=3, **options)
        loader.load_state_dict(state)
        seen += taken(loader)
        assert loader.state_dict() == {**state, "epoch": 1, "position": 0}
    assert sorted(sum(seen, [])) == list(range(COUNT))


def test_the_same_ranks_get_the_same_batches_after_a_restart(shards):
    whole = taken(Loader(shards, level, 5, seed=2))
    first, second = (Loader(shards, level, 5, seed=2) for _ in range(2))
    batches = iter(first)
    head = [next(batches).tolist() for _ in range(2)]
    second.load_state_dict(first.state_dict())
    assert head + taken(second) == whole
    assert taken(batches) == whole[2:]


def test_a_loop_that_was_left_goes_on(shards):
    loader = Loader(shards, level, 5, seed=2)
    for _ in loader:
        break
    assert len(loader) == 4
    assert len(list(loader)) == 4
    assert len(list(loader)) == 5  # the next epoch


def test_ranks_take_every_sample_once(shards):
    def train(comm, source, decode):
        loader = Loader(source, decode, 3, seed=0, rank=comm.rank, ranks=comm.size)
        return [batch.tolist() for batch in loader]

    by_rank = run(train, 3, shards, level)
    assert len({len(batches) for batches in by_rank}) == 1
    assert sorted(n for batches in by_rank for batch in batches for n in batch) == list(
        range(COUNT)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_was_overtaken_is_told(shards, workers):
    """By another loop, or because the training went back to a checkpoint in the middle of it."""
    loader = Loader(shards, level, 5, seed=2, workers=workers)
    before, first = loader.state_dict(), iter(loader)
    next(first)
    next(iter(loader))
    with pytest.raises(RuntimeError, match="a loop was at 4 of epoch 0, and the loader is at 8 of"):
        next(first)
    second = iter(loader)
    next(second)
    loader.load_state_dict(before)
    with pytest.raises(
        RuntimeError, match="a loop was at 13 of epoch 0, and the loader is at 0 of"
    ):
        next(second)
    assert len(list(loader)) == 5


def test_no_more_is_read_ahead_than_depth_says(shards):
    """One batch is handed out, `depth` are ready or under way."""
    reads = []

    def counted(name, data):
        reads.append(name)
        return level(name, data)

    loader = Loader(shards, counted, 2, seed=0, workers=2, depth=3)
    batches = iter(loader)
    next(batches)
    batches.close()  # waits for what is under way
    assert 1 <= len(reads) <= 1 + 2 * 3  # 23 samples in steps of 2: the first step has one


def test_workers_decode_at_once(shards):
    """Each of two waits for the other."""
    meeting, met = threading.Barrier(2, timeout=60), set()

    def together(name, data):
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            meeting.wait()
        return level(name, data)

    assert len(taken(Loader(shards, together, 12, seed=0, workers=2))) == 2


def test_torch_uses_one_thread_in_a_worker_and_as_many_as_before_elsewhere(shards):
    before, told = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        taken(Loader(shards, lambda *_: torch.tensor(torch.get_num_threads()), 9, seed=0))
        inside = Loader(shards, lambda *_: torch.tensor(torch.get_num_threads()), 9, seed=0)
        assert {n for batch in taken(inside) for n in batch} == {1}
        later = threading.Thread(target=lambda: told.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert (torch.get_num_threads(), told) == (3, [3])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_picture_that_cannot_be_decoded_is_named(tmp_path, workers):
    write_pictures(tmp_path, 5, side=64)
    broken = tmp_path / "b" / "003.png"
    broken.write_bytes(broken.read_bytes()[:60])
    loader = Loader(Files(tmp_path, "*.png"), level, 2, seed=0, workers=workers)
    with pytest.raises(ValueError, match=r"b/003.png \(60 bytes\) cannot be decoded"):
        list(loader)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


def test_a_broken_picture_is_told_with_its_rank(tmp_path):
    write_pictures(tmp_path, 8)
    (tmp_path / "a" / "004.png").write_bytes(b"")

    def train(comm, source, decode):
        list(Loader(source, decode, 2, seed=0, rank=comm.rank, ranks=comm.size))

    with pytest.raises(RankError, match=r"rank \d.*a/004.png \(0 bytes\) cannot be decoded"):
        run(train, 2, Files(tmp_path, "*.png"), level)


def test_what_comes_first_is_not_lost_by_an_error_that_comes_later(tmp_path):
    write_pictures(tmp_path, 9)
    files = Files(tmp_path, "*.png")
    last = files.names[epoch_order(files.groups, 0, 0)[-1]]
    (tmp_path / last).unlink()
    loader = Loader(files, level, 3, seed=0)
    batches = iter(loader)
    assert [len(next(batches)) for _ in range(2)] == [3, 3]
    with pytest.raises(FileNotFoundError, match="was there when its folder was listed"):
        next(batches)
    assert loader.position == 6


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [({"workers": -1}, "the number of workers is a whole number, 0 or more, not -1"),
     ({"batch": 0}, "samples in a batch is a whole number, 1 or more, not 0"),
     ({"depth": 0}, "2 workers are at least 1 batch ahead, not 0"),
     ({"rank": 2, "ranks": 2}, "a rank among 2 is 0 to 1, not 2"),
     ({"ranks": 24}, "each of 24 ranks needs a sample in every step, and 23 are left"),
     ({"window": 0}, "groups that are read together is a whole number, 1 or more, not 0"),
     ({"seed": -1}, "the seed is a whole number, 0 or more, not -1"),
     ({"batch": 2.5}, "samples in a batch is a whole number, 1 or more, not 2.5"),
     ({"depth": float("nan")}, "batches ahead is a whole number, 0 or more, not nan")],
)  # fmt: skip
def test_what_cannot_be_is_refused(shards, changed, sentence):
    options = {"batch": 2, "seed": 0, "workers": 2} | changed
    with pytest.raises(ValueError, match=sentence):
        Loader(shards, level, **options)


@pytest.mark.parametrize("name", ["samples", "names", "seed", "window"])
def test_a_position_in_another_order_is_refused(files, shards, name):
    loader = Loader(shards, level, 2, seed=0)
    state = json.loads(json.dumps(loader.state_dict()))
    sentence = f"in the order of {name} 99 says nothing in that of {name} {state[name]}"
    with pytest.raises(ValueError, match=sentence):
        loader.load_state_dict(state | {name: 99})
    with pytest.raises(ValueError, match="in the order of samples None says nothing"):
        loader.load_state_dict({"epoch": 0})
    with pytest.raises(ValueError, match="in the order of names"):
        Loader(files, level, 2, seed=0).load_state_dict(state)
    with pytest.raises(ValueError, match="each of 4 ranks needs a sample in every step, and 3 are"):
        Loader(shards, level, 2, seed=0, ranks=4).load_state_dict(state | {"position": 20})
    with pytest.raises(ValueError, match="a position among 23 samples is 0 to 22, not 23"):
        loader.load_state_dict(state | {"position": 23})


@pytest.mark.parametrize("what", ["epoch", "position"])
@pytest.mark.parametrize("value", [-1, 1.5, "3", None])
def test_a_position_is_two_whole_numbers(shards, what, value):
    loader = Loader(shards, level, 2, seed=0)
    with pytest.raises(ValueError, match=f"the {what} is a whole number, 0 or more, not {value!r}"):
        loader.load_state_dict(loader.state_dict() | {what: value})


def test_a_million_names_are_gone_through_once(files):
    """Not in the pause of every checkpoint."""
    source = copy.copy(files)
    loader = Loader(source, level, 2, seed=0)
    before = loader.state_dict()
    source.names = None
    assert loader.state_dict() == before


def test_a_name_may_be_any_bytes(tmp_path):
    """As a file from an old archive, whose name is no UTF-8."""
    (tmp_path / os.fsdecode(b"caf\xe9.raw")).write_bytes(b"1")
    (tmp_path / "é 照片.raw").write_bytes(b"22")
    files = Files(tmp_path)
    for source in (files, write_shards(files, tmp_path / "shards", 2)):
        loader = Loader(source, lambda _, data: len(data), 1, seed=0)
        loader.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert sorted(batch.item() for batch in loader) == [1, 2]


def test_pictures_of_two_sizes_make_no_batch(tmp_path):
    write_pictures(tmp_path / "one", 2, side=8)
    write_pictures(tmp_path / "two", 2, side=9)
    loader = Loader(Files(tmp_path, "*.png"), lambda _, data: torch.zeros(len(data)), 4, seed=0)
    with pytest.raises(RuntimeError, match="equal size"):
        list(loader)
