import os
import shutil
import signal
import subprocess
import sys
import threading

import psutil
import pytest
import torch
import torch.distributed as dist

from course.comm.tensors import DTYPES
from course.worlds import RankError, processes, run
from course.worlds.sockets import torch_backend


def told(act, *args) -> str:
    """What a call says that must fail."""
    try:
        act(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def ramp(rank, *shape, dtype=torch.float64):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) + 10 * rank).to(dtype)


def every_call(comm):
    """What each collective makes of ramps, against what it is defined to be."""
    native, p, me, wrong = comm.native, comm.size, comm.rank, []
    for use in range(5):
        for size in (1, 2, 101, 70_001):
            all_ = [ramp(rank + use, size) for rank in range(p)]
            stack = torch.stack(all_)
            results = {
                "sum": stack.sum(0), "mean": stack.mean(0), "prod": stack.prod(0),
                "min": stack.amin(0), "max": stack.amax(0),
            }  # fmt: skip
            for op, expected in results.items():
                x, out = all_[me].clone(), torch.zeros(size, dtype=torch.float64)
                native.all_reduce(x, op)
                native.reduce_scatter(out, [all_[me] * (part + 1) for part in range(p)], op)
                scaled = expected * (me + 1) ** (p if op == "prod" else 1)
                if not (torch.allclose(x, expected) and torch.allclose(out, scaled)):
                    wrong.append((use, size, op))
            outs, copy = [torch.zeros_like(all_[0]) for _ in range(p)], all_[me].clone()
            native.all_gather(outs, all_[me])
            native.broadcast(copy, root=use % p)
            if not (torch.equal(torch.stack(outs), stack) and torch.equal(copy, all_[use % p])):
                wrong.append((use, size, "copies"))
        native.barrier()
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_backends_collectives_are_what_they_are_called(ranks):
    assert run(every_call, ranks) == [[]] * ranks


VIEWS = {
    "a column": lambda parent: parent[:, 3],
    "transposed": lambda parent: parent[1:4, 2:7].T,
    "with steps": lambda parent: parent[::2, 1::3],
    "0-dim": lambda parent: parent[2, 5],
    "empty": lambda parent: parent[:, 2:2],
    "conjugate": lambda parent: parent[1].conj(),
    "negative": lambda parent: parent[1:3].conj().imag,
}


def reduce_views(comm):
    """In NaN-guarded parents.  gloo by itself also writes beside a strided tensor."""
    native, right = comm.native, {}
    for name, view in VIEWS.items():
        dtype = torch.complex64 if name in ("conjugate", "negative") else torch.float32
        parent = torch.full((6, 8), float("nan"), dtype=dtype)
        expected = parent.clone()
        mine, goal = view(parent), view(expected)
        mine.copy_(ramp(comm.rank, *mine.shape, dtype=mine.dtype))
        goal.copy_(sum(ramp(r, *goal.shape, dtype=goal.dtype) for r in range(comm.size)))
        native.all_reduce(mine)
        native.broadcast(mine, 1)
        outs = [torch.full_like(mine, 7) for _ in range(comm.size)]
        native.all_gather(outs, mine)
        same = torch.allclose(parent, expected, equal_nan=True)
        right[name] = same and all(torch.allclose(out, goal) for out in outs)
    return right


def test_the_backend_is_given_only_what_is_in_one_piece():
    for right in run(reduce_views, 2):
        assert right == dict.fromkeys(VIEWS, True)


def one_conjugate(comm):
    x = torch.tensor([1 + 2j, 3 - 1j])
    x = x.conj() if comm.rank else x
    comm.native.all_reduce(x)
    leaf = torch.tensor([2.0], requires_grad=True)
    comm.native.all_reduce(leaf)
    outs = [torch.zeros(3) for _ in range(comm.size)]
    comm.native.all_gather(outs, torch.tensor(5.0).expand(3))
    return x.tolist(), leaf.tolist(), leaf.requires_grad, torch.stack(outs).tolist()


def test_a_rank_may_come_with_a_view_where_the_others_do_not():
    """The first version left the conjugate bit to gloo, which refused it on that rank alone."""
    expected = ([2 + 0j, 6 + 0j], [4.0], True, [[5.0] * 3] * 2)
    assert run(one_conjugate, 2) == [expected] * 2


def every_dtype(comm):
    said = {}
    for dtype in DTYPES:
        x = torch.ones(3).to(dtype)
        said[dtype] = told(comm.native.all_reduce, x)
        if said[dtype] == "nothing" and not torch.equal(x, (2 * torch.ones(3)).to(dtype)):
            said[dtype] = "wrong"
    return said


def test_a_dtype_is_right_or_refused():
    said = run(every_dtype, 2)[0]
    refused = {dtype: text for dtype, text in said.items() if text != "nothing"}
    sentence = "ValueError: rank 0: the backend has no all_reduce for torch.int16"
    assert refused == {torch.int16: sentence}


def disagree(comm):
    native, odd = comm.native, comm.rank == 1
    return [
        told(native.all_reduce, torch.zeros(2 + odd)),
        told(native.all_reduce, torch.zeros(2, dtype=torch.int32 if odd else torch.float32)),
        told(native.all_reduce, torch.zeros(2), "max" if odd else "sum"),
        told(native.broadcast, torch.zeros(2), 1 if odd else 0),
        told(native.barrier) if odd else told(native.all_reduce, torch.zeros(2)),
        told(comm.barrier) if odd else told(native.barrier),
        told(native.all_reduce, torch.ones(2)),  # the program may go on
    ]


def test_what_would_abort_the_process_or_corrupt_its_data_is_named():
    pairs = [
        (
            "native.all_reduce #3 (float32 [2], op sum)",
            "native.all_reduce #3 (float32 [3], op sum)",
        ),
        ("native.all_reduce #4 (float32 [2], op sum)", "native.all_reduce #4 (int32 [2], op sum)"),
        (
            "native.all_reduce #5 (float32 [2], op sum)",
            "native.all_reduce #5 (float32 [2], op max)",
        ),
        ("native.broadcast #6 (float32 [2], root 0)", "native.broadcast #6 (float32 [2], root 1)"),
        ("native.all_reduce #7 (float32 [2], op sum)", "native.barrier #7"),
        ("native.barrier #8", "barrier #8"),
    ]
    expected = [
        f"CommMismatch: rank 1 is in {odd}; ranks 0, 2 are in {usual}" for usual, odd in pairs
    ]
    assert run(disagree, 3) == [[*expected, "nothing"]] * 3


def misuse(comm):
    native, x = comm.native, torch.zeros(2)
    return [
        told(native.all_reduce, x, "avg"),
        told(native.all_reduce, torch.zeros(2, dtype=torch.int64), "mean"),
        told(native.all_reduce, torch.zeros(1).expand(2)),
        told(native.all_gather, [x, x], [1.0, 2.0]),
        told(native.broadcast, x, 5),
        told(native.broadcast, x, -1),
        told(native.all_reduce, x),  # nobody is left behind in any of these
    ]


def test_misuse_is_refused_in_one_sentence():
    assert run(misuse, 2)[1] == [
        "ValueError: rank 1: the backend reduces by sum, mean, prod, min, max, not by 'avg'",
        "ValueError: rank 1: torch.int64 holds no means",
        "ValueError: rank 1: cannot receive into an expanded tensor (float32 [2] with strides "
        "[0]): several of its elements share one place",
        "ValueError: rank 1: what is sent must be a tensor, not list [1.0, 2.0]",
        "ValueError: rank 1: no root 5 among 2 ranks",
        "ValueError: rank 1: no root -1 among 2 ranks",
        "nothing",
    ]


def in_groups(comm):
    group = comm.split(comm.rank % 2)
    x, everyone = torch.tensor([float(comm.rank)]), torch.tensor([1.0])
    group.native.all_reduce(x)
    comm.native.all_reduce(everyone)
    backwards, first = comm.split(0, key=-comm.rank), torch.tensor([float(comm.rank)])
    backwards.native.broadcast(first, root=0)
    return x.item(), everyone.item(), first.item(), group.native is group.native


def test_groups_have_the_backends_collectives_too():
    said = run(in_groups, 4, on=processes(nodes=[0, 0, 1, 1]))
    assert said == [(2.0, 4.0, 3.0, True), (4.0, 4.0, 3.0, True)] * 2


def in_overlapping_groups(comm):
    """In several orders; the group of all is asked for before and after smaller ones."""
    found = []
    for turn in range(2):
        if turn:
            comm.native.barrier()
        pair = comm.split(0 if comm.rank else None)
        if pair:
            pair.native.barrier()
        everyone, x = comm.split("all"), torch.ones(1)
        everyone.native.all_reduce(x)
        found.append(x.item())
    return found


def test_overlapping_groups_may_ask_in_any_order():
    """torch names a group by what each rank has made before: ranks 1 and 2 of these had made one
    group more than rank 0, looked for it under another name, and waited beyond any time-out."""
    assert run(in_overlapping_groups, 3, timeout=10) == [[3.0, 3.0]] * 3


def listening(comm):
    """Where this rank listens, before the backend has started and while it is in use."""
    before = listeners()
    comm.native.all_reduce(torch.ones(1000))
    comm.native.barrier()
    during = listeners()
    comm.native.barrier()
    return before, during


def listeners():
    """Where this process listens."""
    sockets = psutil.Process().net_connections("inet")
    return [socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN]


def test_nothing_listens_beyond_this_machine(monkeypatch):
    """Each rank's gloo on loopback, though the site names another network; and no store at all."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    said = run(listening, 3)
    assert [before for before, _ in said] == [[], [], []]
    for _, during in said:
        assert len(during) == 1 and set(during) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def where_they_meet(comm):
    """The mode of the folder in which ranks find one another, and whether it outlives that."""
    make, modes = torch_backend.process_group, []

    def look(comm, store, *how):
        folder = os.path.dirname(store.path)
        modes.extend([oct(os.stat(folder).st_mode)[-3:], folder])
        return make(comm, store, *how)

    torch_backend.process_group = look
    comm.native.barrier()
    comm.barrier()
    mode, folder = modes
    return mode, os.path.exists(folder)


def test_ranks_find_one_another_in_a_folder_that_is_theirs_alone_and_soon_gone():
    assert run(where_they_meet, 3) == [("700", False)] * 3


def use_then_die(comm, how):
    x = torch.ones(1_000_000)
    comm.native.all_reduce(x)
    if comm.rank == 1:
        {"before": lambda: os.kill(os.getpid(), signal.SIGKILL),
         "amid": threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGKILL]).start,
         "raises": lambda: 1 / 0}[how]()  # fmt: skip
    while True:
        comm.native.all_reduce(x)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("how", ["before", "amid", "raises"])
def test_who_was_lost_is_to_blame_and_not_who_noticed_first(how, checked):
    """gloo's error for a lost connection was once taken for a failure of the rank that met it."""
    with pytest.raises(RankError) as caught:
        run(use_then_die, 2, how, checked=checked)
    error = caught.value
    assert error.rank == 1
    assert error.failures[0].startswith("PeerLost: rank ")
    kind = "ZeroDivisionError" if how == "raises" else "PeerLost: rank 1 was ended by SIGKILL"
    assert error.failures[1].startswith(kind)


def wait_for_nobody(comm):
    comm.native.barrier()
    return told(comm.native.barrier) if comm.rank == 0 else None


def test_the_backend_waits_no_longer_than_the_time_out():
    said = run(wait_for_nobody, 2, checked=False, timeout=0.5)[0]
    assert said in (
        "CommTimeout: rank 0 waited too long in native.barrier #4",
        "PeerLost: rank 0 lost its connection to another rank in native.barrier #4",
    )


def no_backend(comm):
    comm.barrier()
    return dist.is_initialized()


def test_the_backend_is_not_started_for_a_program_that_does_not_ask():
    assert run(no_backend, 2) == [False, False]


ALONE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
SUM = """
import torch
from course.worlds import run

def total(comm):
    x = torch.ones(3)
    comm.native.all_reduce(x)
    return x.tolist()

if __name__ == "__main__":
    print(run(total, 2))
"""


def test_without_a_network_nothing_is_said_of_it(tmp_path):
    """c10d looks its peers' names up and warned on stderr, into a notebook's cell, where it could
    not: the loopback interface needs no names."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"]).returncode:
        pytest.skip("this user may not make a network of its own")
    script = tmp_path / "total.py"
    script.write_text(SUM)
    said = subprocess.run([*ALONE, sys.executable, script], capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]\n", "")
