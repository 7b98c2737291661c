"""Runs of attention over a sequence of which every rank has a part: a rank imports this alone."""

from course.classroom.comparison import largest_difference
from course.parallel.sequence import ring_attention


def attention_of_part(comm, q, k, v, cut):
    """Of causal attention [batch, rows, features] and the sum of its squares: this rank's answers,
    the slopes of its keys, and how many numbers it has sent, there and on the way back."""
    mine = [cut.part(each, comm.rank, 1).requires_grad_() for each in (q, k, v)]
    answers = ring_attention(comm, *mine, cut, causal=True)
    there = comm.meter.sent_bytes // q.element_size()
    answers.square().sum().backward()
    back = comm.meter.sent_bytes // q.element_size() - there
    return answers.detach(), mine[1].grad, (there, back)


def off_by(found, expected, slope_of_k, cut) -> float:
    """The largest difference between what the ranks have found and the whole answers and slopes."""
    pairs = []
    for rank, (answers, slopes, _) in enumerate(found):
        for mine, whole in ((answers, expected), (slopes, slope_of_k)):
            pairs.append((cut.part(whole, rank, 1), mine))
    return largest_difference(pairs)
