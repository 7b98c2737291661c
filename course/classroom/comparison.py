"""Compare an answer's numbers with the right ones, and with what a slip would have given.

`compare` runs a learner's function beside the right one on several cases; `like`, `close`,
`multiple` and `refuse` compare single values, `largest_difference` what several ranks have.
"""

from copy import deepcopy

import torch

from course.classroom.answers import function
from course.classroom.problems import Wrong


def compare(answer, right, cases, slips=(), *, otherwise, shape_is="the answer", **bounds):
    """Raise Wrong unless `answer(*case)` gives what `right(*case)` gives, for each of `cases`, as
    close as `bounds` say (`tolerance` and `least` of `close`).

    A wrong value is compared with those of `slips`, pairs (function, sentence): the first that
    gives the same, for the same case, has its sentence raised; else `otherwise` is.  The answer
    gets copies, and an answer that changes a tensor that it was given is wrong too.
    """
    for case in cases:
        given = copied(case)
        got = like(function(answer)(*given), right(*copied(case)), shape_is)
        if not close(got, right(*copied(case)), **bounds):
            refuse(got, *((slip(*copied(case)), words) for slip, words in slips), **bounds)
            raise Wrong(otherwise)
        if any(isinstance(a, torch.Tensor) and not torch.equal(a, b) for a, b in zip(given, case)):
            raise Wrong("the value is right, but what the function was given has changed.")


def copied(case) -> list:
    """Copies of all in a case: what a function does to them leaves the case as it is."""
    return [each.clone() if isinstance(each, torch.Tensor) else deepcopy(each) for each in case]


def like(got, right, shape_is="one number per weight"):
    """The answer as a tensor like `right`.  Raises Wrong where nothing, what is no number, or
    another shape came."""
    if got is None:
        raise Wrong("nothing came back: does the function end in return?")
    try:
        got, right = torch.as_tensor(got).detach(), torch.as_tensor(right)
    except (TypeError, ValueError, RuntimeError):  # a text, a list of texts, a dictionary
        raise Wrong(f"{shape_is} is made of numbers, and {got!r:.40} is not.") from None
    if got.shape != right.shape:
        raise Wrong(f"{shape_is} has shape {list(right.shape)}, not {list(got.shape)}.")
    return got.to(right)


def multiple(got, right):
    """c where got = c * right, else None."""
    c = (got * right).sum() / (right * right).sum()
    return c if close(got, c * right) else None


def close(a, b, tolerance=1e-6, least=0.0) -> bool:
    """Whether two numbers or tensors have one shape and agree up to a share `tolerance` of `b`, and
    to `least`, which is for a `b` of 0."""
    a, b = (torch.as_tensor(each, dtype=torch.float64) for each in (a, b))
    return a.shape == b.shape and bool((a - b).norm() <= tolerance * b.norm() + least)


def largest_difference(pairs) -> float:
    """The largest difference between a number of one tensor and the same one of another."""
    return max((a - b).abs().max().item() for a, b in pairs)


def refuse(got, *slips, **bounds):
    """Raise Wrong with the sentence of the first (value, sentence) that `got` agrees with."""
    for value, sentence in slips:
        if close(got, value, **bounds):
            raise Wrong(sentence)
