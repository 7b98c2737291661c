"""In which order the samples of a training come, and how far it is."""

import itertools

from course.learning.training.descent import batches


class Order:
    """Batches of `batch` of so many `samples`, each sample once an epoch, shuffled by `seed`; the
    same for any number of ranks, which share a batch out.  A part of a checkpoint.

    Raises ValueError for a batch of none, or of more than there are.
    """

    def __init__(self, samples: int, batch: int, seed: int):
        self.samples, self.batch, self.seed = samples, batch, seed
        self._begin_at(0)

    def next(self):
        """The numbers of the next batch's samples, int64 [batch, or fewer at an epoch's end]."""
        self.dealt += 1
        return next(self._batches)

    def describe(self):
        return [f"batches of {self.batch} of {self.samples} samples, seed {self.seed}"]

    def shared(self):
        return {"dealt": self.dealt}

    def own(self):
        return None

    def load(self, shared, owns, rank, size):
        self._begin_at(shared["dealt"])

    def _begin_at(self, dealt):
        every = batches(self.samples, self.batch, self.seed)
        self.dealt, self._batches = dealt, itertools.islice(every, dealt, None)
