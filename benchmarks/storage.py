"""Photographs for a training: shards with prefetch against torch's DataLoader; what shards and the
page cache are worth on this disk."""

import io
import statistics
import tempfile
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

from benchmarks.report import NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, seconds
from course.cluster.storage import Files, Loader, read_timed, write_shards
from course.learning.images import read
from course.learning.images.staging import staged

BATCH, PER_SHARD, SIDE = 20, 25, 320
AS_FAST = Aim("≥", 1.0)


def measure(turns, *, workers=(1, 2), photographs=None) -> Table:
    """A row for every number of workers, and for files and shards, warm and cold."""
    with tempfile.TemporaryDirectory() as folder:
        files = Files(photographs or staged("bsds500", "val"), "*.jpg")
        shards = write_shards(files, Path(folder, "shards"), PER_SHARD)
        rows = [row for count in workers for row in against_torch(files, shards, count, turns)]
        return Table("Reading photographs", [*rows, *from_disk(files, shards, turns)], NOTE)


NOTE = f"""Photographs of BSDS500 (val), decoded by Pillow to grey, the {SIDE} x {SIDE} in the \
middle, in batches of {BATCH}; a turn is one epoch in random order, the page cache warm. ratio = \
seconds of DataLoader on the single files / seconds, with the same number of workers, which it \
keeps from epoch to epoch. Reading alone, in bytes as they are: ratio = seconds of the single \
files, warm or cold too / seconds."""


def against_torch(files, shards, workers, turns) -> list:
    loaders = {
        "DataLoader, files": torch_loader(files, workers),
        "DataLoader, shards": torch_loader(shards, workers),
        "Loader, files": Loader(files, grey_middle, BATCH, seed=0, workers=workers),
        "Loader, shards": Loader(shards, grey_middle, BATCH, seed=0, workers=workers),
    }
    times = in_turns({name: lambda loader=loader: seconds(lambda: epoch(loader, len(files)))
                      for name, loader in loaders.items()}, turns)  # fmt: skip
    return [
        row(name, workers, len(files), times[name], times["DataLoader, files"],
            AS_FAST if name == "Loader, shards" else NO_AIM)
        for name in list(loaders)[1:]
    ]  # fmt: skip


def from_disk(files, shards, turns) -> list:
    def reading(source, cold):
        return lambda: read_timed(source, range(len(source)), cold=cold).seconds

    sources = {"files": files, "shards": shards}
    temperatures = {"warm": False, "cold": True}
    kinds = [(name, how) for name in sources for how in temperatures]
    times = in_turns(
        {f"{name}, {how}": reading(sources[name], temperatures[how]) for name, how in kinds}, turns
    )
    return [
        row(f"bytes of {name}, {how}", 0, len(files), times[f"{name}, {how}"],
            times[f"files, {how}"], NO_AIM)
        for name, how in kinds
    ]  # fmt: skip


def row(what, workers, samples, times, others, aim) -> dict:
    rate = samples / statistics.median(times)
    told = {"what": what, "workers": workers, "samples/s": f"{rate:.0f}"}
    return told | judged(Ratio.of(others, times), aim)


class Decoded(Dataset):
    """A source as torch wants it."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, number):
        return grey_middle(self.source.names[number], self.source.read(number))


def torch_loader(source, workers):
    return DataLoader(Decoded(source), BATCH, shuffle=True, num_workers=workers,
                      persistent_workers=True)  # fmt: skip


def grey_middle(name, data):
    picture = read(io.BytesIO(data))
    top, left = ((length - SIDE) // 2 for length in picture.shape)
    return picture[top : top + SIDE, left : left + SIDE]


def epoch(loader, samples):
    if sum(len(batch) for batch in loader) != samples:
        raise RuntimeError(f"an epoch has {samples} samples")
