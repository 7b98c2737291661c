"""What passes between stages: parcels forward, slopes back; between ranks in messages.

A parcel is a head of one number, the rows of its micro-batch and the length of its text, or 0 if
that is the last one's of this connection; the text, if it is new; then its tensors.  Slopes are
as many as tensors want them.  Sends begin, and are waited for, which frees what was sent, when a
rank that has taken it says anything later; a receive is for a connection, a micro-batch and a way,
which its tag says.  Long tensors go in lanes, beside the rank's own work: see `lanes.py`.
"""

import math
from collections import deque

import torch

from course.parallel.pipeline.lanes import Lanes
from course.parallel.pipeline.parcels import Parcel, room
from course.parallel.pipeline.schedule import INPUT
from course.parallel.pipeline.step import FORWARD, WEIGHT_GRADIENT

HEAD_BYTES, LENGTH_BITS = 8, 32
THERE, BACK = 0, 1


class Mail:
    """One rank's post for the stages of `schedule`, over `comm`: `here` {(from, to, micro-batch):
    what waits on this rank}, `coming` {(from, to, micro-batch, way): (text, tensors, waits)},
    `handles` {rank: [(at which step of its row it takes it, a handle)]}."""

    def __init__(self, comm, schedule):
        self.comm, self.schedule, self.handles = comm, schedule, {}
        self.places = {(stage, micro_batch, THERE if kind == FORWARD else BACK): place
                       for row in schedule.rows for place, (stage, kind, micro_batch)
                       in enumerate(row) if kind != WEIGHT_GRADIENT}  # fmt: skip
        connections = [(source, stage) for stage, sources in schedule.takes.items()
                       for source in sources]  # fmt: skip
        self.numbers = {connection: number for number, connection in enumerate(connections)}
        self.lanes = Lanes(comm, _neighbours(schedule))
        self.told, self.heard, self.sent = {}, {}, {}
        self.here, self.coming, self.expected, self.rows = {}, {}, {}, {}

    def begin(self, forward_only: bool, sizes=()):
        """Expect what the others' rows say, of micro-batches of these `sizes`; () are unknown."""
        self.rows = dict(enumerate(sizes))
        self.handles = {rank: [] for rank in range(self.comm.size)}
        self.sent, self.here, self.coming = {}, {}, {}
        self.expected = {rank: deque(_posts(self.schedule, rank, self.comm.rank, forward_only))
                         for rank in range(self.comm.size)}  # fmt: skip

    def give(self, parcel, source, target, micro_batch):
        """Pass on a parcel from stage `source`, or the INPUT, to `target`."""
        if source == INPUT or self._is_here(target):
            self.here[source, target, micro_batch] = parcel
            return
        rank, tag = self._rank(target), self._tag(source, target, micro_batch, THERE)
        self.sent[source, target, micro_batch] = parcel.text
        words = parcel.text.encode() if self.told.get((source, target)) != parcel.text else b""
        self.told[source, target] = parcel.text
        rows = self.rows.get(micro_batch, 0) << LENGTH_BITS
        head = [torch.tensor([rows | len(words)], device="cpu")]
        if words:
            head.append(torch.tensor([*words], dtype=torch.uint8, device="cpu"))
        handles = [self.comm.isend(x, rank, tag) for x in head]
        handles += [self.lanes.send(x, rank, tag) for x in parcel.tensors]
        self._keep(handles, target, micro_batch, THERE)

    def take(self, source, target, micro_batch) -> Parcel:
        """Wait for the parcel from stage `source`, or the INPUT, to `target`; its tensors are new,
        wherever they come from, so they may be changed in place."""
        if source == INPUT or self._is_here(source):
            text, tensors = self.here.pop((source, target, micro_batch))
            return Parcel(text, [x.clone() for x in tensors])
        return self._awaited(self._rank(source), (source, target, micro_batch, THERE))

    def give_back(self, slopes, source, target, micro_batch):
        """Pass back the slopes of what `target` took from `source`."""
        if source == INPUT or self._is_here(source):
            self.here[target, source, micro_batch] = slopes
            return
        rank, tag = self._rank(source), self._tag(source, target, micro_batch, BACK)
        handles = [self.lanes.send(slope, rank, tag) for slope in slopes]
        self._keep(handles, source, micro_batch, BACK)

    def take_back(self, source, target, micro_batch) -> list:
        """Wait for the slopes of what `target` took from `source`."""
        if source == INPUT or self._is_here(target):
            return self.here.pop((target, source, micro_batch))
        return self._awaited(self._rank(target), (source, target, micro_batch, BACK)).tensors

    def settle(self):
        """Wait for all that was sent."""
        for rank in self.handles:
            self._settle(rank, math.inf)

    def _settle(self, rank, place):
        """Wait for what a rank has taken up to a step of its row."""
        through = [handle for taken, handle in self.handles[rank] if taken <= place]
        self.handles[rank] = [entry for entry in self.handles[rank] if entry[0] > place]
        for handle in through:
            handle.wait()

    def _keep(self, handles, taker, micro_batch, way):
        """Remember handles of what stage `taker` takes."""
        place = self.places[taker, micro_batch, way]
        self.handles[self._rank(taker)] += [(place, handle) for handle in handles]

    def _awaited(self, rank, post) -> Parcel:
        """What `post` brings; what that rank sends before it is let in, too."""
        while post not in self.coming:
            first = self.expected[rank].popleft()
            self.coming[first] = self._let_in(rank, *first)
        text, tensors, waits = self.coming.pop(post)
        for wait in waits:
            wait.wait()
        source, target, micro_batch, way = post
        self._settle(rank, self.places[source if way == THERE else target, micro_batch, way])
        return Parcel(text, tensors)

    def _let_in(self, rank, source, target, micro_batch, way) -> tuple:
        """Begin to receive the tensors of a post, once it is known what they are."""
        tag = self._tag(source, target, micro_batch, way)
        if way == BACK:
            text = self.sent.pop((source, target, micro_batch))
            wanted = Parcel(text, []).differentiable
            tensors = [x for x, want in zip(room(text, self.comm.device), wanted) if want]
        else:
            text = self._text(source, target, micro_batch, rank, tag)
            self.heard[source, target] = text
            tensors = room(text, self.comm.device)
        return text, tensors, [self.lanes.receive(x, rank, tag) for x in tensors]

    def _text(self, source, target, micro_batch, rank, tag) -> str:
        head = torch.empty(1, dtype=torch.long, device="cpu")
        self.comm.recv(head, rank, tag)
        rows, length = divmod(head.item(), 1 << LENGTH_BITS)
        if self.rows.setdefault(micro_batch, rows) != rows:
            raise ValueError(f"rank {self.comm.rank}: all ranks cut the same batch alike, and of "
                             f"micro-batch {micro_batch} rank {rank} has {rows} rows, and this one "
                             f"{self.rows[micro_batch]}")  # fmt: skip
        if not length:
            return self.heard[source, target]
        words = torch.empty(length, dtype=torch.uint8, device="cpu")
        self.comm.recv(words, rank, tag)
        return bytes(words.tolist()).decode()

    def _rank(self, stage) -> int:
        return self.schedule.rank_of[stage]

    def _is_here(self, stage) -> bool:
        return self._rank(stage) == self.comm.rank

    def _tag(self, source, target, micro_batch, way) -> int:
        return (micro_batch * len(self.numbers) + self.numbers[source, target]) * 2 + way


def _posts(schedule, rank, to, forward_only):
    """What `rank` sends to rank `to` in a step, in its order."""
    for stage, kind, micro_batch in schedule.rows[rank] if rank != to else ():
        if kind == FORWARD:
            found = [(stage, target, micro_batch, THERE) for target in schedule.targets(stage)]
        elif kind == WEIGHT_GRADIENT or forward_only:
            found = []
        else:
            found = [(source, stage, micro_batch, BACK) for source in schedule.takes[stage]]
        for post in found:
            other = post[1] if kind == FORWARD else post[0]
            if schedule.rank_of.get(other) == to:
                yield post


def _neighbours(schedule) -> list:
    """Pairs (from, to) of ranks that send to each other."""
    ranks = schedule.rank_of
    pairs = [(ranks[source], ranks[stage]) for stage, sources in schedule.takes.items()
             for source in sources if source != INPUT]  # fmt: skip
    return sorted({pair for a, b in pairs if a != b for pair in ((a, b), (b, a))})
