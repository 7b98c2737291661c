"""A coefficient, a walk, an atom and a repaired step: answers that were really likely."""

from functools import partial

import torch

from course.classroom.problems import p04_sparse_coding as p04
from course.learning.sparse import sparse_coding
from tests.classroom.gallery import Gallery, gallery_tests

# One coefficient


def coefficient_stub(patch, atom, penalty):
    """The best coefficient, a number, of one atom [pixels] for a patch [pixels]."""
    ...


def coefficient_of_the_package(patch, atom, penalty):
    return sparse_coding.coordinate_descent(patch[None], atom[None], penalty, 1).values[0, 0]


def coefficient_by_cases(patch, atom, penalty):
    v, n = float(atom @ patch), float(atom @ atom)
    return (v - penalty) / n if v > penalty else (v + penalty) / n if v < -penalty else 0


def coefficient_in_a_row(patch, atom, penalty):
    return p04.shrink(atom[None] @ patch, penalty) / (atom @ atom)


def a_coefficient(patch, atom, penalty, *, price=1, divide=True, power=2):
    z = p04.shrink(atom @ patch, price * penalty)
    return z / atom.norm() ** power if divide else z


def coefficient_divided_too_early(patch, atom, penalty):
    return p04.shrink(atom @ patch / (atom @ atom), penalty)


def coefficient_above_zero(patch, atom, penalty):
    return max(0.0, float(atom @ patch - penalty)) / (atom @ atom)


def coefficient_moved_down(patch, atom, penalty):
    return (atom @ patch - penalty) / (atom @ atom)


def coefficient_by_a_hard_threshold(patch, atom, penalty):
    v = atom @ patch
    return v / (atom @ atom) if v.abs() > penalty else 0.0


def coefficient_of_the_match(patch, atom, penalty):
    return atom @ patch


def coefficient_printed(patch, atom, penalty):
    str(p04.best_coefficient(patch, atom, penalty))


# The walk


def walk_stub(patch, atoms, penalty, steps):
    """The code [atoms] after so many steps of FISTA, from all zeros."""
    raise NotImplementedError


def walk_of_the_package(patch, atoms, penalty, steps):
    return sparse_coding.fista(patch[None], atoms, penalty, steps).values[0]


def walk_by_the_gram_matrix(patch, atoms, penalty, steps):
    gram, pull = atoms @ atoms.T, atoms @ patch
    L = torch.linalg.eigvalsh(gram)[-1]
    z, y, t = torch.zeros_like(pull), torch.zeros_like(pull), 1.0
    for _ in range(steps):
        z_next = p04.shrink(y + (pull - gram @ y) / L, penalty / L)
        t_next = (1 + (1 + 4 * t * t) ** 0.5) / 2
        y = z_next + (t - 1) / t_next * (z_next - z)
        z, t = z_next, t_next
    return z


def walk_of_ista(patch, atoms, penalty, steps):
    return sparse_coding.ista(patch[None], atoms, penalty, steps).values[0]


def walk_with_t_for_ever_1(patch, atoms, penalty, steps):
    rate, t = 1 / torch.linalg.matrix_norm(atoms, 2) ** 2, 1
    code = ahead = patch.new_zeros(len(atoms))
    for _ in range(steps):
        before = code
        code = p04.shrink(ahead + rate * atoms @ (patch - ahead @ atoms), rate * penalty)
        t_next = (1 + (1 + 4 * t**2) ** 0.5) / 2
        ahead = code + (t - 1) / t_next * (code - before)
    return code


def walk_one_too_few(patch, atoms, penalty, steps):
    return walk_of_the_package(patch, atoms, penalty, steps - 1)


def walk_one_too_many(patch, atoms, penalty, steps):
    return walk_of_the_package(patch, atoms, penalty, steps + 1)


def a_walk(patch, atoms, penalty, steps, *, length=1.0, curvature=2.0, power=2, early=False,
           one=1.0, bar=True, back=1, at=0, out=0):  # fmt: skip
    """FISTA, with room for the slips of a learner who types it."""
    rate = length / torch.linalg.matrix_norm(atoms, 2) ** curvature
    code, ahead, t = patch.new_zeros(len(atoms)), patch.new_zeros(len(atoms)), 1
    for _ in range(steps):
        missed = patch - (ahead, code)[at] @ atoms
        new = p04.shrink(ahead + rate * atoms @ missed, (rate if bar else 1) * penalty)
        t_next = (1 + (1 + 4 * t**power) ** 0.5) / 2
        t = t_next if early else t
        ahead, code, t = new + back * (t - one) / t_next * (new - code), new, t_next
    return (code, ahead)[out]


def a_lead(patch, atoms, penalty, steps, *, shrunk=True, ahead_of):
    """FISTA of a learner whose point ahead is `ahead_of(code, before, ahead, share)`."""
    L = torch.linalg.matrix_norm(atoms, 2) ** 2
    code, ahead, t = patch.new_zeros(len(atoms)), patch.new_zeros(len(atoms)), 1
    for _ in range(steps):
        new = ahead + atoms @ (patch - ahead @ atoms) / L
        new = p04.shrink(new, penalty / L) if shrunk else new
        t_next = (1 + (1 + 4 * t**2) ** 0.5) / 2
        ahead, code, t = ahead_of(new, code, ahead, (t - 1) / t_next), new, t_next
    return code


def walk_without_a_threshold(*case):
    return a_lead(*case, shrunk=False, ahead_of=lambda z, z0, y, share: z + share * (z - z0))


def walk_that_leads_from_ahead(*case):
    return a_lead(*case, ahead_of=lambda z, z0, y, share: y + share * (z - z0))


def walk_that_moves_from_ahead(*case):
    return a_lead(*case, ahead_of=lambda z, z0, y, share: z + share * (z - y))


def walk_of_a_row(patch, atoms, penalty, steps):
    return sparse_coding.fista(patch[None], atoms, penalty, steps).values


def walk_with_restart(patch, atoms, penalty, steps):
    return 1.5 * walk_of_the_package(patch, atoms, penalty, steps)


def walk_that_only_prints(patch, atoms, penalty, steps):
    walk_of_the_package(patch, atoms, penalty, steps).tolist()


# The best atom


def atom_stub(patches, codes, atoms, j):
    """Atom j [pixels] of length 1 with which the codes miss least, all other atoms held."""
    ...


def atom_by_the_others(patches, codes, atoms, j):
    others = [i for i in range(len(atoms)) if i != j]
    wanted = codes[:, j] @ (patches - codes[:, others] @ atoms[others])
    return wanted / wanted.norm() if wanted.norm() > 0 else atoms[j]


def atom_in_loops(patches, codes, atoms, j):
    wanted = torch.zeros_like(atoms[j])
    for patch, code in zip(patches, codes, strict=True):
        rest = patch - sum(code[i] * atoms[i] for i in range(len(atoms)) if i != j)
        wanted += code[j] * rest
    return wanted / wanted.norm() if codes[:, j].any() else atoms[j]


def full(patches, codes, atoms, j):
    return codes[:, j] @ (patches - codes @ atoms + torch.outer(codes[:, j], atoms[j]))


def atom_or_nan(patches, codes, atoms, j):
    wanted = full(patches, codes, atoms, j)
    return wanted / wanted.norm()


def atom_or_zeros(patches, codes, atoms, j):
    wanted = full(patches, codes, atoms, j)
    return wanted / wanted.norm().clamp(min=1e-12)


def atom_of_the_miss(patches, codes, atoms, j):
    return p04.drawn_to(lambda w, missed, atom, patches: w @ missed)(patches, codes, atoms, j)


def atom_one_step(patches, codes, atoms, j):
    missed = patches - codes @ atoms
    atom = atoms[j] + (codes[:, j, None] * missed).mean(dim=0)
    return atom / atom.norm()


def atom_of_the_patches(patches, codes, atoms, j):
    wanted = (codes[:, j, None] * patches).mean(dim=0)
    return wanted / wanted.norm()


def atom_of_signs(patches, codes, atoms, j):
    rest = patches - codes @ atoms + codes[:, j, None] * atoms[j]
    wanted = codes[:, j].sign() @ rest
    return wanted / wanted.norm()


def atom_without_weights(patches, codes, atoms, j):
    wanted = (patches - codes @ atoms + codes[:, j, None] * atoms[j]).mean(dim=0)
    return wanted / wanted.norm()


def atom_backwards(patches, codes, atoms, j):
    return -p04.best_atom(patches, codes, atoms, j)


def atom_off_twice(patches, codes, atoms, j):
    wanted = codes[:, j] @ (patches - codes @ atoms - codes[:, j, None] * atoms[j])
    return wanted / wanted.norm()


def atom_of_some_length(patches, codes, atoms, j):
    return full(patches, codes, atoms, j)


def atom_by_least_squares(patches, codes, atoms, j):
    return full(patches, codes, atoms, j) / codes[:, j].square().sum()


def atom_by_sizes(patches, codes, atoms, j):
    return torch.nn.functional.normalize(full(patches, codes, atoms, j), p=1, dim=0)


def atom_by_the_square(patches, codes, atoms, j):
    wanted = full(patches, codes, atoms, j)
    return wanted / (wanted**2).sum()


def atom_of_length_1_at_most(patches, codes, atoms, j):
    return full(patches, codes, atoms, j) / full(patches, codes, atoms, j).norm().clamp(min=1)


def atom_by_the_mean(patches, codes, atoms, j):
    return full(patches, codes, atoms, j) / len(patches)


def atom_and_all_others(patches, codes, atoms, j):
    new = atoms.clone()
    new[j] = p04.best_atom(patches, codes, atoms, j)
    return new


def atom_from_a_row(patches, codes, atoms, j):
    missed = patches - codes @ atoms
    wanted = codes[j] @ (missed + codes[j][:, None] * atoms[j])
    return wanted / wanted.norm()


def atom_written_into_atoms(patches, codes, atoms, j):
    atoms[j] = p04.best_atom(patches, codes, atoms, j)
    return atoms[j]


def atom_halfway(patches, codes, atoms, j):
    atom = atoms[j] + p04.best_atom(patches, codes, atoms, j)
    return atom / atom.norm()


# The repaired step


def moved(patches, atoms, penalty, rate):
    """The atoms after the step, not scaled yet."""
    codes = sparse_coding.fista(patches, atoms, penalty, steps=50).values
    return atoms + rate * codes.T @ (patches - codes @ atoms) / len(patches)


def step_by_normalize(patches, atoms, penalty, rate):
    return torch.nn.functional.normalize(moved(patches, atoms, penalty, rate), dim=1)


def step_atom_by_atom(patches, atoms, penalty, rate):
    return torch.stack([atom / atom.norm() for atom in moved(patches, atoms, penalty, rate)])


def step_encoded(patches, atoms, penalty, rate):
    codes = sparse_coding.encode(patches, atoms, penalty).values
    atoms = atoms + rate * codes.T @ (patches - codes @ atoms) / len(patches)
    return atoms / atoms.norm(dim=1, keepdim=True)


def step_without_lengths(patches, atoms, penalty, rate):
    return moved(patches, atoms, penalty, rate)


def step_of_another_average(patches, atoms, penalty, rate):
    atoms = moved(patches, atoms, penalty, rate)
    return atoms / (atoms.norm(dim=1).sum() / len(atoms))


def step_by_the_longest(patches, atoms, penalty, rate):
    atoms = moved(patches, atoms, penalty, rate)
    return atoms / max(atom.norm() for atom in atoms)


def step_of_a_whole(patches, atoms, penalty, rate):
    atoms = moved(patches, atoms, penalty, rate)
    return atoms / atoms.norm()


def step_along_the_other_axis(patches, atoms, penalty, rate):
    return torch.nn.functional.normalize(moved(patches, atoms, penalty, rate), dim=0)


def step_without_keepdim(patches, atoms, penalty, rate):
    atoms = moved(patches, atoms, penalty, rate)
    return atoms / atoms.norm(dim=1)


def step_by_the_square(patches, atoms, penalty, rate):
    atoms = moved(patches, atoms, penalty, rate)
    return atoms / (atoms**2).sum(dim=1, keepdim=True)


def step_by_sizes(patches, atoms, penalty, rate):
    return torch.nn.functional.normalize(moved(patches, atoms, penalty, rate), p=1, dim=1)


def step_of_at_most_1(patches, atoms, penalty, rate):
    return torch.renorm(moved(patches, atoms, penalty, rate), 2, 0, 1.0)


def step_with_twice_the_penalty(patches, atoms, penalty, rate):
    return p04.unit(moved(patches, atoms, 2 * penalty, rate))


def step_with_half_the_rate(patches, atoms, penalty, rate):
    return p04.unit(moved(patches, atoms, penalty, rate / 2))


def step_that_only_codes(patches, atoms, penalty, rate):
    return sparse_coding.fista(patches, atoms, penalty, steps=50).values


GALLERIES = [
    Gallery(
        "best_coefficient",
        coefficient_stub,
        [
            *(p04.best_coefficient, coefficient_of_the_package, coefficient_by_cases),
            coefficient_in_a_row,
        ],
        {
            "right for an atom of length 1": partial(a_coefficient, divide=False),
            "the penalty has to be divided by": coefficient_divided_too_early,
            "without a penalty": partial(a_coefficient, price=0),
            "not by its length": partial(a_coefficient, power=1),
            "here it becomes 0": coefficient_above_zero,
            "v is moved down, whatever it is": coefficient_moved_down,
            "stays as it is": coefficient_by_a_hard_threshold,
            "the squared residual counts half": partial(a_coefficient, price=0.5),
            "twice too large": partial(a_coefficient, price=2),
            "set the slope of the objective": coefficient_of_the_match,
            "nothing came back": coefficient_printed,
            "a function is wanted": 0.9,
        },
    ),
    Gallery(
        "fista_walk",
        walk_stub,
        [p04.fista_walk, walk_of_the_package, walk_by_the_gram_matrix],
        {
            "this is ISTA": walk_of_ista,
            "the soft threshold is missing.": walk_without_a_threshold,
            "look ahead from the new code": walk_that_leads_from_ahead,
            "the move is new code - old code": walk_that_moves_from_ahead,
            "one step too few.": walk_one_too_few,
            "one step too many.": walk_one_too_many,
            "this is the point ahead": partial(a_walk, out=1),
            "that of the point ahead, not of the code.": partial(a_walk, at=1),
            "rate * penalty, not the penalty.": partial(a_walk, bar=False),
            "t has grown too early": partial(a_walk, early=True),
            "the 1 is missing": partial(a_walk, one=0.0),
            "the lead points back": partial(a_walk, back=-1),
            "t is squared under the root.": partial(a_walk, power=1),
            "L is the square of the matrix norm": partial(a_walk, curvature=1.0),
            "the step is half as long": partial(a_walk, length=0.5),
            "the step is twice as long": partial(a_walk, length=2.0),
            "the code has shape [5], not [1, 5].": walk_of_a_row,
            "step from the point ahead, shrink": walk_with_restart,
            "nothing came back": walk_that_only_prints,
        },
    ),
    Gallery(
        "best_atom",
        atom_stub,
        [p04.best_atom, atom_by_the_others, atom_in_loops],
        {
            "becomes nan, 0 divided by 0": atom_or_nan,
            "has no best direction": atom_or_zeros,
            "with atom j in place": atom_of_the_miss,
            "one step of Olshausen and Field's rule": atom_one_step,
            "only the rest is wanted": atom_of_the_patches,
            "not by its sign": atom_of_signs,
            "and by the sign of that": atom_without_weights,
            "the atom points the wrong way": atom_backwards,
            "it is taken off twice": atom_off_twice,
            "the direction is right; scale it": atom_of_some_length,
            "the best atom of any length": atom_by_least_squares,
            "the root of a sum of squares": atom_by_sizes,
            "divided by the length squared": atom_by_the_square,
            "a mean instead of a length": atom_by_the_mean,
            "shorter than 1 is scaled up": atom_of_length_1_at_most,
            "an atom has shape [3], not [5, 3].": atom_and_all_others,
            "must match the size": atom_from_a_row,
            "has changed": atom_written_into_atoms,
            "which direction explains most of it?": atom_halfway,
        },
    ),
    Gallery(
        "step_of_learning",
        p04.step_of_learning_with_a_bug,
        [
            p04.step_of_learning,
            step_by_normalize,
            step_atom_by_atom,
            step_of_at_most_1,
            step_encoded,
        ],
        {
            "the atoms are not scaled:": step_without_lengths,
            "length 1 only on average": step_of_another_average,
            "the longest atom has length 1": step_by_the_longest,
            "all atoms together have length 1": step_of_a_whole,
            "the other axis": step_along_the_other_axis,
            "is a column": step_without_keepdim,
            "divided by the length squared": step_by_the_square,
            "the table of atoms has shape [4, 4]": step_that_only_codes,
            "the root of a sum of squares": step_by_sizes,
            "another penalty hides the symptom": step_with_twice_the_penalty,
            "change its last line only": step_with_half_the_rate,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
