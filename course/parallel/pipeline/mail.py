"""What passes between stages: parcels forward, slopes back; between ranks in messages.

Sends begin and are waited for at the end; a receive is for a connection, a micro-batch and a way,
which its tag says: nobody waits for anything but what the next step needs.
A parcel is a head of one number, the length of its text, or 0 if that is the last one's of this
connection; the text, if it is new; then its tensors.  Slopes are as many as tensors want them.
"""

import torch

from course.parallel.pipeline.parcels import Parcel, room
from course.parallel.pipeline.schedule import INPUT

HEAD_BYTES = 8


class Mail:
    """One rank's post for the stages of `schedule`, over `comm`."""

    def __init__(self, comm, schedule):
        self.comm, self.rank_of, self.handles = comm, schedule.rank_of, []
        connections = [(source, stage) for stage, sources in schedule.takes.items()
                       for source in sources]  # fmt: skip
        self.numbers = {connection: number for number, connection in enumerate(connections)}
        self.told, self.heard, self.here = {}, {}, {}

    def give(self, parcel, source, target, micro_batch):
        """Pass on a parcel from stage `source`, or the INPUT, to `target`."""
        if source == INPUT or self._is_here(target):
            self.here[source, target, micro_batch] = parcel
            return
        rank, tag = self.rank_of[target], self._tag(source, target, micro_batch, 0)
        words = parcel.text.encode()
        if self.told.get((source, target)) == parcel.text:
            words = b""
        self.told[source, target] = parcel.text
        self._send(torch.tensor([len(words)], device="cpu"), rank, tag)
        if words:
            self._send(torch.tensor([*words], dtype=torch.uint8, device="cpu"), rank, tag)
        for x in parcel.tensors:
            self._send(x, rank, tag)

    def take(self, source, target, micro_batch) -> Parcel:
        """Wait for the parcel from stage `source`, or the INPUT, to `target`."""
        if source == INPUT or self._is_here(source):
            return self.here.pop((source, target, micro_batch))
        rank, tag = self.rank_of[source], self._tag(source, target, micro_batch, 0)
        head = torch.empty(1, dtype=torch.long, device="cpu")
        self.comm.recv(head, rank, tag)
        if length := head.item():
            words = torch.empty(length, dtype=torch.uint8, device="cpu")
            self.comm.recv(words, rank, tag)
            self.heard[source, target] = bytes(words.tolist()).decode()
        text = self.heard[source, target]
        return Parcel(text, self._received(room(text, self.comm.device), rank, tag))

    def give_back(self, slopes, source, target, micro_batch):
        """Pass back the slopes of what `target` took from `source`."""
        if source == INPUT or self._is_here(source):
            self.here[target, source, micro_batch] = slopes
            return
        for slope in slopes:
            self._send(slope, self.rank_of[source], self._tag(source, target, micro_batch, 1))

    def take_back(self, like, source, target, micro_batch) -> list:
        """Wait for the slopes of the tensors `like`, which `target` took from `source`."""
        if source == INPUT or self._is_here(target):
            return self.here.pop((target, source, micro_batch))
        tag = self._tag(source, target, micro_batch, 1)
        return self._received([torch.empty_like(x) for x in like], self.rank_of[target], tag)

    def settle(self):
        """Wait for all that was sent."""
        while self.handles:
            self.handles.pop(0).wait()

    def clear(self):
        """Forget what a step has left that broke off."""
        self.handles.clear()
        self.here.clear()

    def _is_here(self, stage) -> bool:
        return self.rank_of[stage] == self.comm.rank

    def _tag(self, source, target, micro_batch, way) -> int:
        return (micro_batch * len(self.numbers) + self.numbers[source, target]) * 2 + way

    def _send(self, x, rank, tag):
        self.handles.append(self.comm.isend(x, rank, tag))

    def _received(self, tensors, rank, tag) -> list:
        for handle in [self.comm.irecv(x, rank, tag) for x in tensors]:
            handle.wait()
        return tensors
