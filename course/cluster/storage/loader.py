"""Batches for a training: read and decoded ahead by threads, in the order of an epoch."""

import functools
import os
import threading
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.utils.data import default_collate

from course.cluster.storage.order import epoch_order, next_step, share, steps_left
from course.comm.counts import required_count


class Loader:
    """The batches of `rank` among `ranks`, from where it stopped to the end of the epoch.

    `source`: `Files` or `Shards`.  `decode(name, bytes)` makes of a sample a tensor, or several;
    torch's `default_collate` makes a batch of them.  `workers` threads prepare up to `depth`
    batches ahead (default: two each); with 0 a batch is made when it is asked for.  Threads
    suffice where `decode` frees Python's lock, as Pillow and torch do, and nothing is copied
    between processes; a `decode` in pure Python keeps to one core.  Order and shares are those of
    `order.py`.

    Raises ValueError for numbers that cannot be, and for a sample that cannot be decoded.
    """

    def __init__(self, source, decode, batch: int, *, seed: int, workers: int = 2, depth=None,
                 window: int = 8, rank: int = 0, ranks: int = 1):  # fmt: skip
        self.source, self.decode, self.batch, self.seed = source, decode, batch, seed
        self.workers, self.depth = workers, 2 * workers if depth is None else depth
        self.window, self.rank, self.ranks = window, rank, ranks
        self.epoch = self.position = 0
        for name, count, least in (
            ("the number of samples in a batch", batch, 1), ("the seed", seed, 0),
            ("the number of workers", workers, 0), ("the number of ranks", ranks, 1),
            ("the number of batches ahead", self.depth, 0),
            ("the number of groups that are read together", window, 1),
        ):  # fmt: skip
            required_count(count, name, least=least)
        if workers and self.depth < 1:
            raise ValueError(f"{workers} workers are at least 1 batch ahead, not {self.depth}")
        if not 0 <= rank < ranks:
            raise ValueError(f"a rank among {ranks} is 0 to {ranks - 1}, not {rank}")
        steps_left(len(source), batch, ranks)

    def __len__(self):
        """How many batches are left of this epoch."""
        return steps_left(len(self.source) - self.position, self.batch, self.ranks)

    def __iter__(self):
        """The batches that are left of this epoch; then the next epoch begins.

        A batch counts as taken, in the position, as soon as it is handed out.  Raises RuntimeError
        where another loop, or `load_state_dict`, has changed the position meanwhile.
        """
        steps = self._steps()
        if not self.workers:
            for place, numbers in steps:
                batch = self._batch(numbers)
                self._took(*place)
                yield batch
            return
        threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(self.workers, "loader", _one_thread, (threads,))
        ahead = deque()
        try:
            for place, numbers in steps:
                ahead.append((place, pool.submit(self._batch, numbers)))
                if len(ahead) > self.depth:
                    yield self._next(ahead)
            while ahead:
                yield self._next(ahead)
        finally:
            pool.shutdown(cancel_futures=True)

    def state_dict(self) -> dict:
        """Where the next batch begins: the same for all ranks, and for any number of them."""
        return {"epoch": self.epoch, "position": self.position, **self._order}

    def load_state_dict(self, state: dict):
        """Go on from there.  Raises ValueError where the order is another one."""
        for name, mine in self._order.items():
            if state.get(name) != mine:
                raise ValueError(
                    f"a position in the order of {name} {state.get(name)} says nothing in that of "
                    f"{name} {mine}"
                )
        epoch, position = (required_count(state.get(name), f"the {name}", least=0)
                           for name in ("epoch", "position"))  # fmt: skip
        samples = len(self.source)
        if position >= samples:
            raise ValueError(
                f"a position among {samples} samples is 0 to {samples - 1}, not {position}"
            )
        steps_left(samples - position, self.batch, self.ranks)
        self.epoch, self.position = epoch, position

    @functools.cached_property
    def _order(self):
        """What must be the same, or a position would be one in another order."""
        names = "\n".join([*map(str, self.source.groups), *self.source.names])
        return {"samples": len(self.source), "names": zlib.crc32(os.fsencode(names)),
                "seed": self.seed, "window": self.window}  # fmt: skip

    def _steps(self):
        """Of every step that is left: its place, (epoch, position, the position behind it), and
        this rank's samples."""
        epoch, position = self.epoch, self.position
        order = epoch_order(self.source.groups, self.seed, epoch, self.window)
        while position < len(order):
            end = position + next_step(len(order) - position, self.batch, self.ranks)
            yield (epoch, position, end), share(order[position:end], self.rank, self.ranks)
            position = end

    def _next(self, ahead):
        place, batch = ahead.popleft()
        batch = batch.result()
        self._took(*place)
        return batch

    def _took(self, epoch, position, end):
        if (epoch, position) != (self.epoch, self.position):
            raise RuntimeError(
                f"a loop was at {position} of epoch {epoch}, and the loader is at {self.position} "
                f"of epoch {self.epoch}: begin another loop"
            )
        ended = end == len(self.source)
        self.epoch, self.position = (epoch + 1, 0) if ended else (epoch, end)

    def _batch(self, numbers: np.ndarray):
        return default_collate([self._sample(number) for number in numbers.tolist()])

    def _sample(self, number):
        data, name = self.source.read(number), self.source.names[number]
        try:
            return self.decode(name, data)
        except Exception as error:
            raise ValueError(f"{name} ({len(data)} bytes) cannot be decoded: {error}") from error


def _one_thread(threads):
    """Let torch use one thread in this worker, or workers and training would fight for the cores;
    in threads that begin later it uses `threads` again."""
    torch.get_num_threads()  # else torch asks for the default when it is used first
    torch.set_num_threads(1)  # of this thread, and by default of later ones
    later = threading.Thread(target=torch.set_num_threads, args=(threads,))
    later.start()
    later.join()
