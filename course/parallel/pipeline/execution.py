"""One batch through a schedule, as one rank does its part of it."""

import functools

import torch

from course.parallel.pipeline.mail import Mail
from course.parallel.pipeline.parcels import pack, room, tensors_of
from course.parallel.pipeline.step import BACKWARD, FORWARD, WEIGHT_GRADIENT
from course.parallel.pipeline.timing import Span


class Execution:
    """This rank's steps, with its `stages` {number: Stage} and its `mail`.

    `finish(micro_batch, output)` makes a loss of what the last stage gives, or nothing.
    `spans` are the steps done, with their seconds; `peak_live`: how many micro-batches were kept
    at most.
    """

    def __init__(self, schedule, stages: dict, mail: Mail, finish):
        self.schedule, self.stages, self.mail, self.finish = schedule, stages, mail, finish
        self.comm, self.spans, self.peak_live = mail.comm, [], 0
        self.texts = {}  # of the parcels that a stage took for a micro-batch: {source: text}

    def run(self, steps):
        """Do these steps, and wait until all that was sent is through.

        What a stage raises says in a note which rank and step it was.
        """
        for step in steps:
            try:
                if step.kind == FORWARD:
                    self._forward(step)
                else:
                    self._backward(step)
            except Exception as error:
                error.add_note(f"rank {self.comm.rank} was in {step} of its pipeline's schedule")
                raise
        self.mail.settle()

    def _forward(self, step):
        number, _, micro_batch = step
        stage, finish = self.stages[number], tensors_of
        if number == self.schedule.stages - 1:
            finish = functools.partial(self.finish, micro_batch)
        sources = self.schedule.takes[number]
        parcels = {source: self.mail.take(source, number, micro_batch) for source in sources}
        self.texts[number, micro_batch] = {source: p.text for source, p in parcels.items()}
        start = self.comm.clock()
        out = stage.forward(micro_batch, parcels, finish)
        self._note(step, start)
        self.peak_live = max(self.peak_live, sum(len(s.kept) for s in self.stages.values()))
        for target in self.schedule.targets(number):
            self.mail.give(pack(out, f"stage {number}"), number, target, micro_batch)

    def _backward(self, step):
        number, kind, micro_batch = step
        stage = self.stages[number]
        if kind == WEIGHT_GRADIENT:
            start = self.comm.clock()
            stage.backward_weight(micro_batch)
            return self._note(step, start)
        slopes = self._slopes(number, micro_batch)
        start = self.comm.clock()
        whole = stage.backward if kind == BACKWARD else stage.backward_input
        came = whole(micro_batch, slopes)
        self._note(step, start)
        self._give_back(number, micro_batch, came)

    def _slopes(self, number, micro_batch) -> list:
        """Of what a stage gave: the sums of what all that took it give back."""
        each = [self.mail.take_back(number, target, micro_batch)
                for target in self.schedule.targets(number)]  # fmt: skip
        return [sum(slopes[1:], slopes[0]) for slopes in zip(*each)] if each else []

    def _give_back(self, number, micro_batch, came):
        """Pass back the slopes `came` {number of tensor: slope}, zero where there is none."""
        first = 0
        for source, text in self.texts.pop((number, micro_batch)).items():
            places = room(text, "meta")
            slopes = [came[first + i] if came[first + i] is not None
                      else torch.zeros_like(x, device=self.comm.device)
                      for i, x in enumerate(places) if first + i in came]  # fmt: skip
            self.mail.give_back(slopes, source, number, micro_batch)
            first += len(places)

    def _note(self, step, start):
        self.spans.append(Span(step, start, self.comm.clock()))
