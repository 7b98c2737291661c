"""Long tensors move while their ranks compute, and short ones go the short way."""

import torch

from course.parallel.pipeline import Pipeline, gpipe
from course.parallel.pipeline.lanes import LONG_BYTES, Lanes
from course.worlds import run

PAIRS = [(0, 1), (1, 0), (1, 2), (2, 0)]


def exchanged(comm):
    """What each rank has received from others: long and short, several at once in each lane."""
    lanes, found, waits, outs = Lanes(comm, PAIRS), [], [], []
    for source, target in PAIRS:
        for tag, elements in enumerate((1, LONG_BYTES, 3, 2 * LONG_BYTES)):
            if comm.rank == source:
                x = torch.full((elements,), 10.0 * source + tag)
                waits.append(lanes.send(x, target, tag))
            elif comm.rank == target:
                outs.append(torch.empty(elements))
                waits.append(lanes.receive(outs[-1], source, tag))
    for wait in waits:
        wait.wait()
    for out in outs:
        found.append((len(out), out.unique().tolist()))
    return found


def test_each_lane_keeps_its_order(on):
    sizes = (1, LONG_BYTES, 3, 2 * LONG_BYTES)
    expected = {rank: [(n, [10.0 * source + tag]) for source, target in PAIRS if target == rank
                       for tag, n in enumerate(sizes)] for rank in range(3)}  # fmt: skip
    assert run(exchanged, 3, on=on(3), timeout=20) == [expected[rank] for rank in range(3)]


class Blocks(torch.nn.Module):
    """Its second forward begins when the next stage has had its first: by a file."""

    def __init__(self, path, rank):
        super().__init__()
        self.path, self.rank, self.calls = path, rank, 0

    def forward(self, x):
        self.calls += 1
        if self.rank == 1:
            self.path.write_text("had it")
        elif self.calls == 2:
            for _ in range(10**9):
                if self.path.exists():
                    return x * 1.0
        return x * 1.0


def overlapped(comm, path):
    pipeline = Pipeline([Blocks(path, rank) for rank in range(2)], comm, gpipe(2, 2),
                        lambda out: out.mean())  # fmt: skip
    return pipeline.step(torch.ones(2, 64 * LONG_BYTES)) is not None


def test_a_long_tensor_comes_while_its_sender_computes(tmp_path, on):
    """64 MB, more than any buffer on the way holds: the sender computes until it has come."""
    assert run(overlapped, 2, tmp_path / "had it", on=on(2), limit=60) == [False, True]
