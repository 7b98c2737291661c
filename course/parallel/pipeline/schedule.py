"""A schedule is a table: for each rank the steps that it does, in their order.

    0F0,0F1,0B0,0B1        rank 0 does stage 0: forward of micro-batches 0 and 1, then backward
    1F0,1B0,1F1,1B1        rank 1 does stage 1

The same table is checked (when it is made), printed, simulated (`timing.simulate`) and executed
(`Pipeline`).  Its text is what torch.distributed.pipelining reads as a CSV file of its own.
"""

import re

from course.parallel.pipeline.checks import check_complete, dry_run
from course.parallel.pipeline.step import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Step

INPUT = -1  # where the batch itself comes from


class Schedule:
    """`rows` [a row of steps each rank], and which stages' outputs each stage takes.

    By default each stage takes that of the one before it; `takes` {stage: stages, or INPUT} says
    otherwise, and is how a skip connection passes stages by.  `order`: all steps, as one process
    could do them.  Raises ValueError for a table that cannot run: see `checks.py`.
    """

    def __init__(self, rows, takes=None):
        self.rows = tuple(tuple(Step.of("".join(map(str, step))) for step in row) for row in rows)
        steps = [step for row in self.rows for step in row]
        if not steps:
            raise ValueError("a schedule has a micro-batch and a stage at least, and this has none")
        self.stages = 1 + max(step.stage for step in steps)
        self.micro_batches = 1 + max(step.micro_batch for step in steps)
        self.takes = {stage: (stage - 1,) for stage in range(self.stages)}
        self._take(takes or {})
        check_complete(self.rows, self.stages, self.micro_batches)
        self.rank_of = {step.stage: rank for rank, row in enumerate(self.rows) for step in row}
        self._backward = {(step.stage, step.micro_batch): step for step in steps
                          if step.kind in (BACKWARD, INPUT_GRADIENT)}  # fmt: skip
        self.order = dry_run(self.rows, self.needs)

    def _take(self, takes):
        for stage, sources in takes.items():
            self.takes[stage] = tuple(sources)
            if stage not in range(self.stages) or not sources:
                raise ValueError(f"stages 0 to {self.stages - 1} take something, not stage {stage} "
                                 f"from {tuple(sources)}")  # fmt: skip
            once = len(set(sources)) == len(sources)
            if not once or not all(INPUT <= source < stage for source in sources):
                raise ValueError(f"a stage takes from those before it, or INPUT, each once: stage "
                                 f"{stage} cannot take from {tuple(sources)}")  # fmt: skip
        for stage in range(self.stages - 1):
            if not self.targets(stage):
                raise ValueError(f"all but the last of {self.stages} stages are for another one: "
                                 f"nobody takes what stage {stage} gives")  # fmt: skip

    def targets(self, stage: int) -> list[int]:
        """The stages that take what `stage` gives."""
        return [other for other, sources in self.takes.items() if stage in sources]

    def needs(self, step) -> list[Step]:
        """The steps that come before `step`, on whatever rank."""
        if step.kind == FORWARD:
            return [step.other(source) for source in self.takes[step.stage] if source != INPUT]
        if step.kind == WEIGHT_GRADIENT:
            return [step.other(kind=INPUT_GRADIENT)]
        back = [self._backward[target, step.micro_batch] for target in self.targets(step.stage)]
        return [step.other(kind=FORWARD), *back]

    def own_stages(self, rank: int) -> list[int]:
        """The stages that are on `rank`."""
        return [stage for stage in range(self.stages) if self.rank_of[stage] == rank]

    @classmethod
    def of(cls, text: str, takes=None) -> "Schedule":
        """Read a table of one's own: a line each rank, steps divided by commas or spaces."""
        lines = text.strip().splitlines()
        rows = [[Step.of(word) for word in re.split(r"[,\s]+", line) if word] for line in lines]
        return cls(rows, takes)

    def __str__(self):
        return "\n".join(",".join(map(str, row)) for row in self.rows)

    def __repr__(self):
        return (f"<schedule of {self.micro_batches} micro-batches through {self.stages} stages on "
                f"{len(self.rows)} ranks>")  # fmt: skip
