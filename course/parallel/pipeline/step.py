"""One entry of a schedule."""

import re
from typing import NamedTuple

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "FBIW"
PATTERN = re.compile(r"(\d+)([FBIW])(\d+)")


class Step(NamedTuple):
    """What a rank does at once: `stage` is the number of a part of the net, `kind` F for its
    forward, B for its backward, or the halves of that: I, the gradient of what came in, and W,
    that of its weights."""

    stage: int
    kind: str
    micro_batch: int

    def __str__(self):
        return f"{self.stage}{self.kind}{self.micro_batch}"

    def other(self, stage=None, kind=None) -> "Step":
        """A step of the same micro-batch."""
        stage = self.stage if stage is None else stage
        return Step(stage, kind or self.kind, self.micro_batch)

    @classmethod
    def of(cls, text: str) -> "Step":
        """Read `2F0`: stage 2, forward, micro-batch 0.  Raises ValueError."""
        match = PATTERN.fullmatch(text)
        if not match:
            raise ValueError(f"a step is a stage, one of F, B, I, W and a micro-batch, as in 2F0, "
                             f"not {text!r}")  # fmt: skip
        return cls(int(match[1]), match[2], int(match[3]))
