import functools
import sys
import threading
import types

import pytest
import torch

from course.comm import CommMismatch, CommTimeout, PeerLost
from course.worlds import RankError, run
from course.worlds.pickling import Failure, pack, pack_result, unpack, unpack_or_none

lock = threading.Lock()


def plain(comm, x=None, y=None):
    return x


def uses_a_lock(comm):
    return lock


def uses_who_uses_a_lock(comm):
    return uses_a_lock(comm)


def encloses(thing):
    def inner(comm):
        return thing

    return inner


class Holder:
    def __init__(self, held):
        self.held = held

    def __call__(self, comm):
        return self.held


PART = functools.partial(plain, x=threading.Lock())
UNSHIPPABLE = {
    "argument": (plain, (1, lock), {}, r"^argument 1 of plain, a lock, cannot be sent to"),
    "keyword": (plain, (), {"y": lock}, r"^argument 'y' of plain, a lock, cannot be sent"),
    "within": (plain, ([1, {"a": lock}],), {}, r"^argument 0 of plain, a list, cannot be sent"),
    "global": (uses_a_lock, (), {}, r"^'lock', which uses_a_lock uses, a lock, cannot be sent"),
    "behind": (uses_who_uses_a_lock, (), {},
               r"^'uses_a_lock', which uses_who_uses_a_lock uses, a function, cannot be sent"),
    "closure": (encloses(lock), (), {}, r"^'thing', which inner uses, a lock, cannot be sent"),
    "generator": (plain, (n for n in range(3)), {}, None),
    "partial": (PART, (), {}, r"^the function 'partial', a partial, cannot be sent"),
    "object": (Holder(lock), (), {}, r"^the function 'Holder', a Holder, cannot be sent"),
    "its argument": (functools.partial(plain), (lock,), {}, r"^argument 0 of partial, a lock"),
    "lambda": (lambda comm: lock, (), {}, r"^'lock', which <lambda> uses, a lock, cannot be sent"),
}  # fmt: skip
UNSHIPPABLE["generator"] = (
    plain,
    ((n for n in range(3)),),
    {},
    r"^argument 0 of plain, a generator, ",
)


@pytest.mark.parametrize("case", UNSHIPPABLE)
def test_what_cannot_be_sent_is_named(case):
    fn, args, kwargs, sentence = UNSHIPPABLE[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        run(fn, 2, *args, **kwargs)
    assert str(caught.value).endswith(("'_thread.lock' object", "'generator' object"))


@pytest.mark.parametrize(
    "fn, words", [(None, "NoneType None"), ("plain", "str 'plain'"), (3, "int 3")]
)
def test_what_is_no_function_is_refused(fn, words):
    with pytest.raises(
        ValueError, match=f"^what runs on the ranks must be a function, not {words}$"
    ):
        run(fn, 2)


def returns_a_lock(comm):
    return [threading.Lock()] if comm.rank == 1 else 0


def test_what_cannot_be_sent_back_is_named():
    with pytest.raises(RankError) as caught:
        run(returns_a_lock, 2)
    error = caught.value
    assert error.rank == 1 and isinstance(error.exception, ValueError)
    assert "rank 1 returned a list, which cannot be sent back: " in str(error)


class Spiteful:
    def __reduce__(self):
        raise RuntimeError("not me")


def test_whatever_pickling_raises_is_told():
    with pytest.raises(ValueError, match=r"^argument 0 of plain, a Spiteful, .* not me$"):
        run(plain, 1, Spiteful())
    with pytest.raises(
        RankError, match="rank 0 returned a Spiteful, which cannot be sent back: not me"
    ):
        run(lambda comm: Spiteful(), 1)


def test_a_call_is_packed_by_value():
    fn, args, kwargs = unpack(pack(lambda comm, x: x + 1, (torch.ones(2),), {"k": 3}))
    assert fn(None, *args).tolist() == [2, 2] and kwargs == {"k": 3}


classes = ops = 3


def test_names_that_torch_has_for_strange_modules_are_names_like_others():
    fn, *_ = unpack(pack(lambda: (torch.tensor(classes) + ops).item(), (), {}))
    assert fn() == 6


def test_causes_come_before_consequences():
    errors = [PeerLost("d"), CommTimeout("c"), CommMismatch("b"), SystemExit("a"), KeyError("a")]
    failures = [Failure.of(0, error) for error in errors]
    assert [failure.severity for failure in failures] == [3, 2, 1, 0, 0]
    assert failures[0].sentence == "PeerLost: d"
    assert failures[0].text() == "course.comm.errors.PeerLost: d"


def test_a_failure_without_a_trace_is_its_sentence():
    failure = Failure(2, 0.0, 0, "it ended")
    assert (failure.text(), failure.stack) == ("it ended", ())


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def test_an_exception_without_words_is_named_all_the_same():
    """Its text was asked for outside of any `try`: the rank then ended by the interpreter's end,
    which waits for threads, and the run with it."""
    failure = Failure.of(1, Mute())
    assert failure.sentence == "Mute: <exception str() failed>"
    assert failure.text().endswith("Mute: <exception str() failed>")


class LeavesWhenUnpacked(Exception):
    def __reduce__(self):
        return sys.exit, (3,)


def test_an_exception_that_leaves_when_it_is_unpacked_does_not_travel():
    failure = Failure.of(0, LeavesWhenUnpacked("bad"))
    assert failure.exception is None and failure.sentence == "LeavesWhenUnpacked: bad"


def test_a_long_sentence_loses_its_middle():
    """A message of 30 MB made an error of 90 MB."""
    failure = Failure.of(0, ValueError("a" * 10**6 + "z" * 10**6))
    assert len(failure.sentence) < 2_100 and len(failure.text()) < 21_000
    assert failure.sentence.startswith("ValueError: aaa") and failure.sentence.endswith("zzz")
    assert " … 1998012 characters left out … " in failure.sentence


def foreign_class(name):
    """An exception of a module that is gone again: as a rank's that changed its sys.path."""
    module = types.ModuleType("helpers_of_mine")
    exec(f"class {name}(Exception): pass", module.__dict__)
    return module, getattr(module, name)


def test_a_traceback_can_be_read_where_its_class_cannot_be_had(monkeypatch):
    """The launcher said `No module named 'helpers_of_mine'`, and no rank."""
    module, kind = foreign_class("Odd")
    with monkeypatch.context() as there:
        there.setitem(sys.modules, "helpers_of_mine", module)
        try:
            try:
                raise kind("first")
            except kind as error:
                raise kind("second") from error
        except kind as error:
            failure = Failure.of(0, error)
    assert failure.sentence == "Odd: second"
    assert "helpers_of_mine.Odd: first" in failure.text()
    assert failure.text().endswith("helpers_of_mine.Odd: second")
    assert [function for *_, function in failure.stack] == [
        "test_a_traceback_can_be_read_where_its_class_cannot_be_had"
    ]
    assert unpack_or_none(failure.exception) is None


@pytest.mark.parametrize("leaves", [SystemExit, GeneratorExit, RecursionError])
def test_what_cannot_be_unpacked_is_a_value_error(leaves):
    class Leaves:
        def __reduce__(self):
            return exec, (f"raise {leaves.__name__}('now')",)

    with pytest.raises(ValueError, match=f"^cannot be unpacked here: {leaves.__name__}: now$"):
        unpack(pack_result(0, Leaves()))
