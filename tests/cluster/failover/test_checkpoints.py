"""Checkpoints on ranks: saved beside the training, found whole, never written over."""

import contextlib
import functools
import json
import os
import resource
import signal
import threading
import warnings

import numpy
import pytest
import torch

from course.cluster.failover import Alike, Checkpoints, Each, Order
from course.worlds import RankError, run


class Kept:
    """Something to be saved: one tensor."""

    def __init__(self, value=0.0, elements=3):
        self.x = torch.full((elements,), float(value))

    def state_dict(self):
        return {"x": self.x}

    def load_state_dict(self, state):
        self.x = state["x"]


def saved(comm, folder, steps, *, every=1, **knobs):
    """Save after so many steps, with the step as value, plus the rank where each has its own."""
    alike, each = Kept(), Kept()
    parts = {"alike": Alike(alike), "each": Each(each)}
    with Checkpoints(comm, folder, every=every, **knobs) as checkpoints:
        for step in steps:
            alike.x.fill_(step), each.x.fill_(step + comm.rank / 10)
            checkpoints.save(step, parts)


def restored(comm, folder, other_ranks=False, parts=None):
    alike, each = Kept(), Kept()
    parts = parts or {"alike": Alike(alike), "each": Each(each)}
    with warnings.catch_warnings(record=True) as caught, Checkpoints(comm, folder, every=1) as all_:
        warnings.simplefilter("always")
        step = all_.restore(parts, other_ranks=other_ranks)
    return step, alike.x.tolist(), each.x.tolist(), [str(each.message) for each in caught]


def there(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_is_saved_is_restored_and_the_last_are_kept(tmp_path, asynchronous):
    run(saved, 3, tmp_path, [2, 4, 6, 11], keep=2, asynchronous=asynchronous)
    assert there(tmp_path) == ["step 11", "step 6"]
    files = ["manifest.json", "rank 0.pt", "rank 1.pt", "rank 2.pt", "shared.pt"]
    assert there(tmp_path / "step 11") == files
    for rank, (step, alike, each, said) in enumerate(run(restored, 3, tmp_path)):
        assert (step, alike, said) == (11, [11.0] * 3, [])
        assert each == torch.full((3,), 11 + rank / 10).tolist()


def test_an_empty_folder_is_a_beginning(tmp_path):
    assert run(restored, 2, tmp_path / "none") == [(0, [0.0] * 3, [0.0] * 3, [])] * 2


def test_one_is_kept_and_older_ones_of_an_earlier_run_go(tmp_path):
    run(saved, 1, tmp_path, [1, 2, 3], keep=3)

    def goes_on(comm, folder):
        kept = {"alike": Alike(Kept()), "each": Each(Kept())}
        with Checkpoints(comm, folder, every=1, keep=1) as checkpoints:
            checkpoints.save(checkpoints.restore(kept) + 1, kept)

    run(goes_on, 1, tmp_path)
    assert there(tmp_path) == ["step 4"]


def test_as_many_are_kept_after_a_restart(tmp_path):
    run(saved, 1, tmp_path, [1, 2, 3], keep=3)

    def goes_on(comm, folder):
        kept = {"alike": Alike(Kept()), "each": Each(Kept())}
        with Checkpoints(comm, folder, every=1, keep=3) as checkpoints:
            checkpoints.save(checkpoints.restore(kept) + 1, kept)

    run(goes_on, 1, tmp_path)
    assert there(tmp_path) == ["step 2", "step 3", "step 4"]


def test_back_to_the_last_one_within_a_run(tmp_path):
    def program(comm, folder):
        kept, seen = Kept(), []
        parts = {"kept": Alike(kept)}
        with Checkpoints(comm, folder, every=1) as checkpoints:
            for step in (1, 2):
                kept.x.fill_(step)
                checkpoints.save(step, parts)
                kept.x.fill_(float("nan"))
                seen.append((checkpoints.restore(parts), kept.x.tolist()))
        return seen

    assert run(program, 2, tmp_path) == [[(1, [1.0] * 3), (2, [2.0] * 3)]] * 2


def test_a_save_is_of_the_moment_and_training_goes_on_meanwhile(tmp_path, monkeypatch):
    """The disk takes nothing before the state has changed: the save returned without it."""

    def program(comm, folder):
        changed, plain, kept = threading.Event(), os.fsync, Kept(1)

        def waiting(descriptor):
            assert changed.wait(30)
            plain(descriptor)

        os.fsync = waiting
        with Checkpoints(comm, folder, every=1) as checkpoints:
            checkpoints.save(1, {"kept": Alike(kept)})
            kept.x.fill_(2)
            changed.set()
        kept.x.fill_(3)
        with Checkpoints(comm, folder, every=1) as checkpoints:
            checkpoints.restore({"kept": Alike(kept)})
        return kept.x.tolist()

    assert run(program, 2, tmp_path) == [[1.0] * 3] * 2


def cut_short(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def changed(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name, harm", [("manifest.json", cut_short), ("manifest.json", os.unlink),
                   ("rank 0.pt", os.unlink), ("rank 1.pt", changed), ("shared.pt", cut_short)]
)  # fmt: skip
def test_one_that_is_damaged_is_passed_over_and_kept(tmp_path, name, harm):
    run(saved, 2, tmp_path, [2, 4])
    harm(tmp_path / "step 4" / name)
    before = {path.name: path.read_bytes() for path in (tmp_path / "step 4").iterdir()}
    results = run(restored, 2, tmp_path)
    assert [(step, alike) for step, alike, *_ in results] == [(2, [2.0] * 3)] * 2
    (said,) = results[0][3]
    assert said.startswith(f"a checkpoint is passed over: {tmp_path}/step 4") and name in said

    def goes_on(comm, folder):
        parts = {"alike": Alike(Kept(9)), "each": Each(Kept(9))}
        with warnings.catch_warnings(), Checkpoints(comm, folder, every=1) as checkpoints:
            warnings.simplefilter("ignore")
            checkpoints.restore(parts)
            checkpoints.save(4, parts)

    run(goes_on, 2, tmp_path)
    assert there(tmp_path) == ["step 2", "step 4", "step 4.aside 1"]
    aside = {path.name: path.read_bytes() for path in (tmp_path / "step 4.aside 1").iterdir()}
    assert aside == before and run(restored, 2, tmp_path)[1][0] == 4


def test_where_all_are_damaged_nothing_begins_anew(tmp_path):
    run(saved, 2, tmp_path, [2, 4])
    for step in (2, 4):
        cut_short(tmp_path / f"step {step}" / "shared.pt")
    with pytest.raises(RankError, match="no checkpoint in .* is whole: .*step 2/shared.pt has"):
        run(restored, 2, tmp_path)
    assert there(tmp_path) == ["step 2", "step 4"]


def refused(tmp_path, ranks, sentence, program=restored, **knobs):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RankError) as caught:
        run(program, ranks, tmp_path, **knobs)
    assert type(caught.value.exception) is ValueError
    assert sentence in str(caught.value.exception), str(caught.value)
    assert len(caught.value.failures) == ranks  # nobody waits for another
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert before == after


def test_of_other_ranks(tmp_path):
    run(saved, 3, tmp_path, [2])
    refused(tmp_path, 2, "step 2 was saved by 3 ranks, and there are 2: other_ranks=True goes on")
    refused(tmp_path, 2, "Kept was saved in 3 parts, and there are 2 ranks", other_ranks=True)


def test_of_another_model_order_or_parts(tmp_path):
    def orders(comm, folder, batch, name="order", step=0):
        parts = {name: Order(9, batch, seed=0)}
        with Checkpoints(comm, folder, every=1) as checkpoints:
            checkpoints.restore(parts)
            checkpoints.save(1, parts)

    run(orders, 2, tmp_path, 3)
    told = "step 1 has in order batches of 3 of 9 samples, seed 0, where this training has batches"
    refused(tmp_path, 2, f"{told} of 4 of 9", orders, batch=4)
    refused(
        tmp_path, 2, "has the parts order, and this training data", orders, batch=3, name="data"
    )


class Stage(Kept):
    """What not all ranks have."""


def test_ranks_with_different_stages(tmp_path):
    def stages(comm, folder, first):
        stage = (Stage if comm.rank == first else Kept)(comm.rank)
        with Checkpoints(comm, folder, every=1) as checkpoints:
            if not checkpoints.restore({"stage": Each(stage)}):
                checkpoints.save(1, {"stage": Each(stage)})
        return stage.x.tolist()

    for _ in range(2):
        assert run(stages, 2, tmp_path, 1) == [[0.0] * 3, [1.0] * 3]
    refused(tmp_path, 2, "has in stage Stage, where this training has Kept", stages, first=0)


def test_of_another_format(tmp_path):
    run(saved, 2, tmp_path, [2])
    path = tmp_path / "step 2" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    refused(tmp_path, 2, "step 2 is of format 99, and what reads it of 1")


def test_checkpoints_that_a_training_did_not_begin_with_are_not_added_to(tmp_path):
    run(saved, 2, tmp_path, [2, 4])
    refused(tmp_path, 2, "has checkpoints up to step 4 that this training did not begin with",
            saved, steps=[6])  # fmt: skip


@pytest.mark.parametrize("step", [-1, 1.5, True])
def test_a_step_that_cannot_be_found_again(tmp_path, step):
    sentence = "the step of a checkpoint is a whole number, 0 or more, not"
    refused(tmp_path, 2, sentence, saved, steps=[step])


def test_a_step_may_be_a_number_of_numpy(tmp_path):
    run(saved, 2, tmp_path, [numpy.int64(3)])
    assert run(restored, 2, tmp_path)[1][:2] == (3, [3.0] * 3)


@pytest.mark.parametrize("error", [None, KeyError])
def test_who_has_let_the_folder_go_does_not_save_in_it(tmp_path, error):
    def program(comm, folder):
        with contextlib.suppress(KeyError), Checkpoints(comm, folder, every=1) as checkpoints:
            if error:
                raise error
        checkpoints.save(1, {"kept": Alike(Kept())})

    refused(tmp_path, 2, "the checkpoints of this training are closed", program)


def test_names_of_parts_are_texts(tmp_path):
    def program(comm, folder):
        with Checkpoints(comm, folder, every=1) as checkpoints:
            checkpoints.save(1, {7: Alike(Kept())})

    refused(tmp_path, 2, "the name of a part is a text, not 7", program)


@pytest.mark.parametrize("name", ["é", b"\xe9"])
def test_folders_that_are_not_one(tmp_path, name):
    """As /tmp of several machines; a name may be no UTF-8."""
    name = os.fsdecode(name)

    def program(comm, folder):
        with Checkpoints(comm, folder / f"{name} of rank {comm.rank}", every=1) as checkpoints:
            checkpoints.save(1, {"kept": Alike(Kept())})

    with pytest.raises(RankError) as caught:
        run(program, 2, tmp_path)
    assert "of rank 0/step 1.unfinished lacks rank 1.pt" in str(caught.value.exception)
    assert len(caught.value.failures) == 2 and there(tmp_path / f"{name} of rank 0") == []


def test_a_save_that_goes_on_keeps_the_folder(tmp_path):
    """The training was interrupted, and another is to begin in the same process."""

    def program(comm, folder):
        go_on, plain, kept = threading.Event(), os.fsync, {"kept": Alike(Kept(1))}

        def waiting(descriptor):
            assert go_on.wait(30)
            plain(descriptor)

        os.fsync = waiting
        with contextlib.suppress(KeyboardInterrupt), Checkpoints(comm, folder, every=1) as first:
            first.save(5, kept)
            raise KeyboardInterrupt
        with pytest.raises(ValueError, match="in use"):
            Checkpoints(comm, folder, every=1)
        go_on.set()
        first.finish()
        with Checkpoints(comm, folder, every=1) as second:
            return second.restore(kept)

    assert run(program, 2, tmp_path) == [5, 5]


@pytest.mark.parametrize("steps", [[4, 4], [4, 3]])
def test_steps_go_up(tmp_path, steps):
    with pytest.raises(RankError, match=f"step {steps[1]} cannot be saved after step 4"):
        run(saved, 2, tmp_path, steps)
    assert there(tmp_path) == ["step 4"]


def test_a_folder_in_use(tmp_path):
    def twice(comm, folder):
        with Checkpoints(comm, folder, every=1):
            Checkpoints(comm, folder, every=1)

    with pytest.raises(RankError, match="no checkpoints: .* is in use by another training"):
        run(twice, 2, tmp_path)


def test_ranks_that_save_different_steps_or_parts(tmp_path):
    def program(comm, folder, by_step):
        step = 1 + by_step * comm.rank
        parts = {"kept" if by_step else f"kept {comm.rank}": Alike(Kept())}
        with Checkpoints(comm, folder, every=1) as checkpoints:
            checkpoints.save(step, parts)

    with pytest.raises(RankError, match="rank 0 saves step 1 of kept, rank 1 step 2 of kept"):
        run(program, 2, tmp_path, True)
    with pytest.raises(RankError, match="rank 0 saves step 1 of kept 0, rank 1 step 1 of kept 1"):
        run(program, 2, tmp_path, False)
    assert not [name for name in there(tmp_path) if name.startswith("step") and "." not in name]


def full(comm, folder, asynchronous):
    """From step 3 on the disk of rank 1 takes files of 20 kB at most."""
    kept = Kept(elements=10_000)
    parts, said = {"kept": Each(kept)}, []
    with Checkpoints(comm, folder, every=1, asynchronous=asynchronous) as checkpoints:
        for step in range(1, 5):
            if step == 3 and comm.rank == 1:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            try:
                checkpoints.save(step, parts)
                checkpoints.finish()
            except OSError as error:
                said.append(str(error))
    return said


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_is_told_on_all_ranks_and_the_last_stays(tmp_path, asynchronous):
    for said in run(full, 2, tmp_path, asynchronous):
        told = "rank 1 could not save step {}: [Errno 27] File too large"
        assert said == [told.format(3), told.format(4)]
    assert there(tmp_path) == ["step 1", "step 2"]


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RankError, match="rank 0: no checkpoints: .*Not a directory|File exists"):
        run(saved, 2, tmp_path / "file", [1])


@pytest.mark.parametrize("knob, said", [("every", "of steps between"), ("keep", "of")])
def test_numbers_that_cannot_be(tmp_path, knob, said):
    with pytest.raises(RankError, match=f"rank 0: the number {said} checkpoints .*or more, not 0"):
        run(saved, 1, tmp_path, [1], **{knob: 0})


class Died(BaseException):
    """A process that is killed does nothing any more."""


CALLS = {name: getattr(os, name)
         for name in ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")}  # fmt: skip


def die_at(number, calls):
    """Let the system take so many calls that change a disk, and none after them."""

    def dying(call, *args, **kwargs):
        calls.append(1)
        if len(calls) >= number:
            raise Died
        return call(*args, **kwargs)

    for name, call in CALLS.items():
        setattr(os, name, functools.partial(dying, call))


def dies_within(comm, folder, number):
    """Whether the second save came to its end, if its process dies at call `number`."""
    kept, calls = Kept(1), []
    checkpoints = Checkpoints(comm, folder, every=1, asynchronous=False, keep=1)
    checkpoints.save(1, {"kept": Alike(kept)})
    kept.x.fill_(2)
    die_at(number, calls)
    with contextlib.suppress(Died):
        checkpoints.save(2, {"kept": Alike(kept)})
    for name, call in CALLS.items():
        setattr(os, name, call)
    checkpoints.folder.unlock()
    return len(calls) < number


def found(comm, folder):
    kept = Kept(elements=3)
    with Checkpoints(comm, folder, every=1) as checkpoints:
        step = checkpoints.restore({"kept": Alike(kept)})
        left = there(folder)
    return step, kept.x.tolist(), left


def dies_everywhere(comm, folder):
    """What is found after a death at each of the calls, one after another."""
    results, ended = [], False
    while not ended:
        place = folder / str(len(results))
        ended = dies_within(comm, place, len(results) + 1)
        results.append(found(comm, place))
    return results


def test_whenever_a_save_breaks_off_the_last_whole_one_is_found(tmp_path):
    (results,) = run(dies_everywhere, 1, tmp_path, timeout=60)
    for step, values, left in results:
        assert values == [float(step)] * 3 and left in ([f"step {step}"], ["step 1", "step 2"])
    steps = [step for step, _, _ in results]
    assert len(steps) > 12 and steps == sorted(steps) and set(steps) == {1, 2}
