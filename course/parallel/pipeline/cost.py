"""What a pipeline's step sends, by formula: bytes and messages of each rank."""

from course.collectives.cost import sent
from course.parallel.pipeline.mail import HEAD_BYTES
from course.parallel.pipeline.parcels import pack
from course.parallel.pipeline.step import FORWARD


def cost(schedule, outputs, *, first: bool = True) -> tuple[list, list]:
    """The bytes and messages that each rank sends in a step: `outputs[stage][micro-batch]` is what
    a stage gives; tensors on the meta device will do.

    Forward, for each stage on another rank that takes it: a head, a text in the `first` step and
    where it is not the one before, and the tensors; backward, as many bytes as of those that have
    a gradient.  For stages in a row that give one tensor of N bytes for each of m micro-batches: m
    (N + 8) and a text a boundary forward, m N back; 2m messages and one, and m back.
    """
    return sent(len(schedule.rows), _messages(schedule, outputs, first))


def _messages(schedule, outputs, first):
    for target, sources in schedule.takes.items():
        there = schedule.rank_of[target]
        for source in (s for s in sources if schedule.rank_of.get(s, there) != there):
            here = schedule.rank_of[source]
            numbers = [step.micro_batch for step in schedule.rows[here]
                       if step.stage == source and step.kind == FORWARD]  # fmt: skip
            parcels = [pack(outputs[source][number], f"stage {source}") for number in numbers]
            told = "" if first else parcels[-1].text
            for parcel in parcels:
                yield from ((here, nbytes) for nbytes in _forward(parcel, told))
                back = zip(parcel.tensors, parcel.differentiable)
                yield from ((there, x.nbytes) for x, wanted in back if wanted)
                told = parcel.text


def _forward(parcel, told) -> list:
    text = [] if parcel.text == told else [len(parcel.text.encode())]
    return [HEAD_BYTES, *text, *(x.nbytes for x in parcel.tensors)]
