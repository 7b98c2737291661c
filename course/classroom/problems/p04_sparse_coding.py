"""Exercises of notebook 04: one coefficient, FISTA, the best atom, lost lengths."""

import torch

from course.classroom.answers import function
from course.classroom.comparison import close, compare, copied, like
from course.classroom.problems import Exercise, Wrong
from course.learning.sparse import sparse_coding


def best_coefficient(patch, atom, penalty):
    """The best coefficient, a number, of one atom [pixels] for a patch [pixels]."""
    return shrink(atom @ patch, penalty) / (atom @ atom)


def one_atom(finish):
    """A wrong coefficient: `finish(v, n, penalty)` of v = atom . patch and n = atom . atom."""

    def slip(patch, atom, penalty):
        return finish(atom @ patch, atom @ atom, penalty)

    return slip


COEFFICIENT_SLIPS = (
    (one_atom(lambda v, n, t: shrink(v, t)),
     "right for an atom of length 1; how does the slope in z depend on the atom's length?"),
    (one_atom(lambda v, n, t: shrink(v / n, t)),
     "the penalty has to be divided by atom . atom, too: write down the slope in z."),
    (one_atom(lambda v, n, t: v / n * (v.abs() > t)),
     "what is above the threshold stays as it is; the soft threshold moves it, too."),
    (one_atom(lambda v, n, t: v / n), "this is the best one without a penalty."),
    (one_atom(lambda v, n, t: shrink(v, t) / n.sqrt()),
     "divide by the squared length of the atom, not by its length."),
    (one_atom(lambda v, n, t: (v - t).clamp(min=0) / n),
     "a negative coefficient is allowed; here it becomes 0."),
    (one_atom(lambda v, n, t: (v - t) / n),
     "v is moved down, whatever it is; it should move towards 0, and not past it."),
    (one_atom(lambda v, n, t: shrink(v, t / 2) / n),
     "the squared residual counts half: is its slope in z right?"),
    (one_atom(lambda v, n, t: shrink(v, 2 * t) / n),
     "the threshold is twice too large: check the slope of the squared residual."),
)  # fmt: skip


def check_coefficient(answer):
    patch, atom = drawn(4, seed=4), 1.5 * unit(drawn(1, 4, seed=1))[0]
    patch = patch + (2 - atom @ patch) / (atom @ atom) * atom
    cases = [(patch, atom, 3.0), (patch, atom, 0.7), (-patch, atom, 0.7), (patch, 0.4 * atom, 0.7)]
    compare(
        lambda *case: as_number(function(answer)(*case)),
        best_coefficient,
        cases,
        COEFFICIENT_SLIPS,
        otherwise="set the slope of the objective in z to 0, for z > 0 and for z < 0; where "
        "neither works, z is 0.",
        shape_is="one number",
    )
    return "the code of (0.2, -1) is empty from penalty 0.9 on, since |d . x| = 0.9."


def as_number(got):
    """A tensor of one number, of whatever shape, as that number; all else as it is."""
    alone = isinstance(got, torch.Tensor) and got.numel() == 1
    return got.reshape(()) if alone else got


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
    """Atom j [pixels] of length 1 with which the residual is smallest, all other atoms held."""
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
     "this is the residual with atom j in place; take its own part out of the sum first."),
    (drawn_to(lambda w, missed, atom, patches: atom + w @ missed / len(missed)),
     "this is one step of Olshausen and Field's rule; here the atom goes all the way."),
    (drawn_to(lambda w, missed, atom, patches: w @ patches),
     "the other atoms have explained a part of the patches: only the rest is wanted."),
    (drawn_to(lambda w, missed, atom, patches: w.sign() @ (missed + w[:, None] * atom)),
     "a patch that uses the atom more counts more: multiply by the coefficient, not by its sign."),
    (drawn_to(lambda w, missed, atom, patches: (missed + w[:, None] * atom).sum(dim=0)),
     "each patch counts by its coefficient of atom j, and by the sign of that."),
    (drawn_to(lambda w, missed, atom, patches: -w @ (missed + w[:, None] * atom)),
     "the atom points the wrong way: patches minus what the other atoms make."),
    (drawn_to(lambda w, missed, atom, patches: w @ (missed - w[:, None] * atom)),
     "add the atom's own part to what is missed; here it is taken off twice."),
    (scaled_by(lambda d, w: d / d.norm().clamp(min=1)),
     "a direction shorter than 1 is scaled up to length 1, too."),
    (scaled_by(lambda d, w: d), "the direction is right; scale it to length 1."),
    (scaled_by(lambda d, w: d / (w @ w)),
     "the best atom of any length; scale it to length 1, or coefficients will shrink for ever."),
    (scaled_by(lambda d, w: d / d.abs().sum()), "a length is the root of a sum of squares."),
    (scaled_by(lambda d, w: d / d.square().sum()), "divided by the length squared."),
    (scaled_by(lambda d, w: d / len(w)), "a mean instead of a length: scale it to length 1."),
)  # fmt: skip


def check_atom(answer):
    n, k, p = 7, 5, 3
    patches, codes, atoms = drawn(n, p, seed=n), drawn(n, k, seed=k), unit(drawn(k, p, seed=p))
    codes = shrink(codes, 0.5)
    little = patches, codes / 20, atoms, 3  # here the wanted direction is shorter than 1
    cases = [(patches, codes, atoms, 0), (patches, codes, atoms, 3), little]
    words = (
        "what would be missed without atom j, and which direction explains most of it? Test your "
        "function with one patch and one atom."
    )
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


def step_from_best_codes(patches, atoms, penalty, rate):
    """The same step, with codes that are proved to be the best."""
    codes = sparse_coding.encode(patches, atoms, penalty).values
    return unit(atoms + rate * codes.T @ (patches - codes @ atoms) / len(patches))


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
    got = function(answer)(*copied(cases[0]))
    exact = got is not None and close(got, step_from_best_codes(*copied(cases[0])), 1e-3)
    compare(
        answer,
        step_from_best_codes if exact else step_of_learning,
        cases,
        STEP_SLIPS,
        otherwise="neither the lengths nor another known slip: go back to the cell as it was, and "
        "change its last line only.",
        shape_is="the table of atoms",
        tolerance=1e-3 if exact else 1e-6,
    )
    return "every atom has length 1 again, so a small objective is an honest one."


def drawn(*shape, seed):
    """Random numbers of that shape."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


EXERCISES = [
    Exercise(
        "best_coefficient",
        "write best_coefficient(patch, atom, penalty): the coefficient of one atom alone.",
        check_coefficient,
        (
            "multiply the square out: only z * (atom @ patch) and z**2 * (atom @ atom) / 2 depend "
            "on z.",
            "for z > 0 the slope is z * (atom @ atom) - atom @ patch + penalty.",
        ),
        (best_coefficient, shrink),
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
        "write best_atom(patches, codes, atoms, j): atom j, of length 1, with which the residual "
        "is smallest while all other atoms stay.",
        check_atom,
        (
            "what would be missed if atom j were not there? missed + codes[:, j, None] * atoms[j]",
            "the best direction is the sum of that over all patches, times codes[:, j].",
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
            "an objective may fall although nothing has improved. Which line keeps coefficients "
            "from becoming cheap?",
        ),
        step_of_learning,
        given=step_of_learning_with_a_bug,
    ),
]
