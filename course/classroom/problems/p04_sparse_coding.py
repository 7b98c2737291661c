"""Exercises of notebook 04: a penalty, FISTA, the best atom, lost lengths."""

import torch

from course.classroom.answers import function, number
from course.classroom.comparison import close, compare, like, refuse
from course.classroom.problems import Exercise, Wrong
from course.learning.sparse import sparse_coding

ATOMS = torch.tensor([[1.0, 0.3], [0.5, 1.0], [0.2, 0.4]], dtype=torch.float64)
PATCH = torch.tensor([0.2, -1.0], dtype=torch.float64)


def penalty_of_silence():
    """The largest pull of an atom on the patch (0.2, -1), up or down: 0.2 * 0.5 - 1 * 1 = -0.9."""
    return (ATOMS @ PATCH).abs().max()


def check_penalty(answer):
    value, right = number(answer), penalty_of_silence()
    if close(value, right, 1e-3):
        return "with this penalty or more, no pull is worth its price."
    pulls = ATOMS @ PATCH
    slips = (
        (-right, "a pull may be negative, a penalty may not: take its size."),
        (pulls.max(), "this pull is the largest with its sign; the strongest one is negative."),
        (pulls.abs().min(), "this penalty silences one atom, and others still speak."),
        (pulls.abs().median(), "this penalty silences two atoms, and one still speaks."),
        (pulls.abs().sum(), "this is the sum of all pulls; each atom pulls for itself."),
        (PATCH.square().sum() / 2, "this is the objective of the empty code, not the penalty."),
        (PATCH.norm(), "this is the length of the patch: enough, but a smaller penalty is, too."),
        (PATCH.abs().max(), "this is the largest pixel; what counts is how the atoms fit."),
        (right / sparse_coding.curvature(ATOMS), "this is divided by L: it is not a step."),
        ((ATOMS / ATOMS.norm(dim=1, keepdim=True) @ PATCH).abs().max(),
         "here the atoms have been scaled to length 1; take them as they are."),
    )  # fmt: skip
    refuse(value, *slips, tolerance=1e-3)
    why = "much: a smaller one is enough" if value > right else "little: an atom still speaks"
    raise Wrong(f"{value:.4g} is too {why}.")


def shrink(values, threshold):
    """Values of any shape moved towards 0 by the threshold, and not past it."""
    return values.sign() * (values.abs() - threshold).clamp(min=0)


def fista_walk(patch, atoms, penalty, steps):
    """The code [atoms] after so many steps of FISTA, from all zeros."""
    rate = 1 / torch.linalg.matrix_norm(atoms, 2) ** 2
    code = ahead = patch.new_zeros(len(atoms))
    t = 1
    for _ in range(steps):
        moved = ahead + rate * atoms @ (patch - ahead @ atoms)
        before, code = code, shrink(moved, rate * penalty)
        t, t_before = (1 + (1 + 4 * t**2) ** 0.5) / 2, t
        ahead = code + (t_before - 1) / t * (code - before)
    return code


def walked(
    *,
    more=0,
    length=1.0,
    bar=1.0,
    price=1.0,
    lead=None,
    grow=None,
    at_code=False,
    out=0,
    seat=0,
    back=0,
):
    """A wrong walk: more steps, another rate or threshold, another point ahead, another result.

    `seat` and `back`: the move is added to (0) the code or (1) the point ahead, and counted from
    (0) the code before or (1) the point ahead.
    """
    lead = lead or (lambda t, t_next: (t - 1) / t_next)
    grow = grow or (lambda t: (1 + (1 + 4 * t**2) ** 0.5) / 2)

    def slip(patch, atoms, penalty, steps):
        curved = torch.linalg.matrix_norm(atoms, 2) ** 2
        rate = length / curved if length else curved**-0.5
        code = ahead = patch.new_zeros(len(atoms))
        t = 1
        for _ in range(steps + more):
            at = code if at_code else ahead
            moved = ahead + rate * atoms @ (patch - at @ atoms)
            before, code = code, shrink(moved, price * penalty * (rate if bar else 1))
            move = lead(t, grow(t)) * (code - (before, ahead)[back])
            ahead, t = (code, ahead)[seat] + move, grow(t)
        return (code, ahead)[out]

    return slip


FISTA_SLIPS = (
    (walked(lead=lambda *_: 0), "this is ISTA: the point ahead never leaves the code."),
    (walked(more=-1), "one step too few."),
    (walked(more=1), "one step too many."),
    (walked(out=1), "this is the point ahead; the code is what the threshold has left."),
    (walked(at_code=True), "the missed part is that of the point ahead, not of the code."),
    (walked(price=0), "nothing is shrunk: the soft threshold is missing."),
    (walked(seat=1), "look ahead from the new code, not from the old point ahead."),
    (walked(back=1), "the move is new code - old code, not new code - point ahead."),
    (walked(bar=0), "the threshold of a step is rate * penalty, not the penalty."),
    (walked(lead=lambda t, t_next: (t_next - 1) / t_next),
     "t has grown too early: the lead is (old t - 1) / new t."),
    (walked(lead=lambda t, t_next: (t - 1) / t), "the lead is (old t - 1) / new t."),
    (walked(lead=lambda t, t_next: t / t_next), "the lead is (t - 1) / new t: the 1 is missing."),
    (walked(lead=lambda t, t_next: (1 - t) / t_next), "the lead points back, not ahead."),
    (walked(grow=lambda t: (1 + (1 + 4 * t) ** 0.5) / 2), "t is squared under the root."),
    (walked(length=0), "L is the square of the matrix norm: the step is too long or too short."),
    (walked(length=0.5), "the step is half as long as it may be: the rate is 1 / L."),
    (walked(length=2.0), "the step is twice as long as it may be: the rate is 1 / L."),
)  # fmt: skip


def check_walk(answer):
    cases = [
        (drawn(pixels, seed=pixels), drawn(atoms, pixels, seed=atoms), penalty, steps)
        for pixels, atoms, penalty, steps in ((3, 5, 0.1, 7), (5, 3, 0.3, 4), (2, 7, 0.05, 12))
    ]
    compare(
        answer,
        fista_walk,
        cases,
        FISTA_SLIPS,
        otherwise="step from the point ahead, shrink, make t grow, then look ahead again.",
        shape_is="the code",
    )
    return "the same two matrix products per step as ISTA, and an error bound that falls squared."


def best_atom(patches, codes, atoms, j):
    """Atom j [pixels] of length 1 with which the codes miss least, all other atoms held."""
    weights = codes[:, j]
    if not weights.any():
        return atoms[j]
    missed = patches - codes @ atoms
    wanted = weights @ (missed + weights[:, None] * atoms[j])
    return wanted / wanted.norm()


def drawn_to(direct):
    """A wrong atom: the direction `direct(weights, missed, atom, patches)`, of length 1."""

    def slip(patches, codes, atoms, j):
        direction = direct(codes[:, j], patches - codes @ atoms, atoms[j], patches)
        return direction / direction.norm() if direction.any() else atoms[j]

    return slip


def scaled_by(scale):
    """A wrong atom: the right direction, of another length."""

    def slip(patches, codes, atoms, j):
        weights, missed = codes[:, j], patches - codes @ atoms
        wanted = weights @ (missed + weights[:, None] * atoms[j])
        return scale(wanted, weights) if weights.any() else atoms[j]

    return slip


ATOM_SLIPS = (
    (drawn_to(lambda w, missed, atom, patches: w @ missed),
     "this is what is missed with atom j in place; take its own part out of the sum first."),
    (drawn_to(lambda w, missed, atom, patches: atom + w @ missed / len(missed)),
     "this is one step of Olshausen and Field's rule; here the atom goes all the way."),
    (drawn_to(lambda w, missed, atom, patches: w @ patches),
     "the other atoms have explained a part of the patches: only the rest is wanted."),
    (drawn_to(lambda w, missed, atom, patches: w.sign() @ (missed + w[:, None] * atom)),
     "a patch that uses the atom more counts more: multiply by the weight, not by its sign."),
    (drawn_to(lambda w, missed, atom, patches: (missed + w[:, None] * atom).sum(dim=0)),
     "each patch counts by its weight of atom j, and by the weight's sign."),
    (drawn_to(lambda w, missed, atom, patches: -w @ (missed + w[:, None] * atom)),
     "the atom points the wrong way: patches minus what the other atoms make."),
    (drawn_to(lambda w, missed, atom, patches: w @ (missed - w[:, None] * atom)),
     "add the atom's own part to what is missed; here it is taken off twice."),
    (scaled_by(lambda d, w: d), "the direction is right; scale it to length 1."),
    (scaled_by(lambda d, w: d / (w @ w)),
     "the best atom of any length; scale it to length 1, or weights will shrink for ever."),
    (scaled_by(lambda d, w: d / d.abs().sum()), "a length is the root of a sum of squares."),
    (scaled_by(lambda d, w: d / d.square().sum()), "divided by the length squared."),
    (scaled_by(lambda d, w: d / len(w)), "a mean instead of a length: scale it to length 1."),
)  # fmt: skip


def check_atom(answer):
    n, k, p = 7, 5, 3
    patches, codes, atoms = drawn(n, p, seed=n), drawn(n, k, seed=k), unit(drawn(k, p, seed=p))
    codes = shrink(codes, 0.5)
    cases = [(patches, codes, atoms, 0), (patches, codes, atoms, 3)]
    words = "weights @ (missed + the atom's own part), scaled to length 1."
    compare(answer, best_atom, cases, ATOM_SLIPS, otherwise=words, shape_is="an atom")
    unused = codes.clone()
    unused[:, 1] = 0
    got = like(function(answer)(patches.clone(), unused, atoms.clone(), 1), atoms[1], "an atom")
    if got.isnan().any():
        raise Wrong("an atom that no patch uses becomes nan, 0 divided by 0; leave it as it is.")
    if not close(got, atoms[1]):
        raise Wrong("an atom that no patch uses has no best direction; leave it as it is.")
    return "one atom after another, this is how `online` learns, with sums instead of patches."


def unit(atoms):
    return atoms / atoms.norm(dim=1, keepdim=True)


def step_of_learning(patches, atoms, penalty, rate):
    """One step of dictionary learning on a batch: the atoms after it."""
    codes = sparse_coding.fista(patches, atoms, penalty, steps=50).values
    missed = patches - codes @ atoms
    atoms = atoms + rate * codes.T @ missed / len(patches)
    return atoms / atoms.norm(dim=1, keepdim=True)


def step_of_learning_with_a_bug(patches, atoms, penalty, rate):
    """One step of dictionary learning on a batch: the atoms after it."""
    codes = sparse_coding.fista(patches, atoms, penalty, steps=50).values
    missed = patches - codes @ atoms
    atoms = atoms + rate * codes.T @ missed / len(patches)
    return atoms / atoms.norm(dim=1).mean()


# How the rows may come out where they should have length 1, and what to say.
LENGTHS = (
    (lambda d: d, "after the step the atoms are not scaled: they grow even faster."),
    (lambda d: d / d.norm(dim=1).mean(), "the atoms have length 1 only on average."),
    (lambda d: d / d.norm(dim=1).max(), "the longest atom has length 1, all others are shorter."),
    (lambda d: d / d.norm(), "all atoms together have length 1; each one should."),
    (lambda d: d / d.norm(dim=0), "every pixel has been scaled over all atoms: the other axis."),
    (
        lambda d: d / d.norm(dim=1) if d.shape[0] == d.shape[1] else d,
        "row i must be divided by its own length: norm(dim=1, keepdim=True) is a column.",
    ),
    (lambda d: d / d.square().sum(dim=1, keepdim=True), "divided by the length squared."),
    (lambda d: d / d.abs().sum(dim=1, keepdim=True), "a length is the root of a sum of squares."),
)


def learned(scale=unit, times=1.0):
    """A wrong step of learning: rows scaled otherwise, or the penalty changed."""

    def slip(patches, atoms, penalty, rate):
        codes = sparse_coding.fista(patches, atoms, times * penalty, steps=50).values
        missed = patches - codes @ atoms
        return scale(atoms + rate * codes.T @ missed / len(patches))

    return slip


STEP_SLIPS = (
    *((learned(scale), sentence) for scale, sentence in LENGTHS),
    (learned(times=2.0), "another penalty hides the symptom; the lengths are the cause."),
)


def check_step(answer):
    cases = [
        (drawn(n, p, seed=n), unit(drawn(k, p, seed=p)), 0.2, rate)
        for n, k, p, rate in ((6, 4, 4, 0.5), (9, 5, 3, 0.25), (3, 2, 5, 1.0))
    ]
    compare(
        answer,
        step_of_learning,
        cases,
        STEP_SLIPS,
        otherwise="everything but the last line was right: code, miss, move, then scale each row.",
        shape_is="the table of atoms",
    )
    return "every atom has length 1 again, so a small objective is an honest one."


def drawn(*shape, seed):
    """Random numbers of that shape."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


EXERCISES = [
    Exercise(
        "penalty_of_silence",
        "put the smallest penalty at which the code of the patch (0.2, -1) is all zero in place "
        "of the dots.",
        check_penalty,
        (
            "with an empty code everything is missed. How strongly does that pull at each atom?",
            "a weight stays at 0 as long as its pull, up or down, is no larger than the penalty.",
        ),
        penalty_of_silence,
    ),
    Exercise(
        "fista_walk",
        "write fista_walk(patch, atoms, penalty, steps): the code after so many steps of FISTA.",
        check_walk,
        (
            "start as naive_ista does, with ahead = code and t = 1, and step from ahead.",
            "keep the code before the step: before, code = code, shrink(moved, rate * penalty)",
            "ahead = code + (t - 1) / t_next * (code - before), and only then t = t_next.",
        ),
        (fista_walk, shrink),
    ),
    Exercise(
        "best_atom",
        "write best_atom(patches, codes, atoms, j): atom j, of length 1, with which the codes "
        "miss least while all other atoms stay.",
        check_atom,
        (
            "what would be missed if atom j were not there? missed + codes[:, j, None] * atoms[j]",
            "the best direction is the sum of that over all patches, times their weight of atom j.",
            "an atom that no patch uses would become 0 / 0: return it as it is.",
        ),
        best_atom,
    ),
    Exercise(
        "step_of_learning",
        "find the bug in step_of_learning and repair it, so that no atom can grow.",
        check_step,
        (
            "print the shortest and the longest atom after the last step.",
            "an objective may fall because weights have become cheap. Which line keeps them dear?",
        ),
        step_of_learning,
        given=step_of_learning_with_a_bug,
    ),
]
