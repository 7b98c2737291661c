"""Learn the atoms that patches are sums of: `olshausen_field`, the rule that found edges in natural
pictures in 1996, and `online`, which needs no rate.

Both code a batch of patches, move the atoms so that the same codes miss less, and go on.
"""

import itertools
from typing import NamedTuple

import torch
from torch.nn.functional import normalize

from course.learning.samples import check_above_zero, check_samples
from course.learning.sparse.sparse_coding import objective, splitting
from course.learning.training.descent import batches

STEPS = 6  # of the walk towards the codes of a batch: what they still lack, later batches even out
BLOCK = 49  # atoms updated at a time


class Learned(NamedTuple):
    """A dictionary [atoms, pixels], and the mean objective of each batch before it was used."""

    dictionary: torch.Tensor
    objectives: torch.Tensor


def olshausen_field(patches, atoms, penalty, *, rate, steps, batch, seed, watch=None):
    """Atoms for `patches` [count, pixels]: each moves towards what it was used for and is missing.

    atom_j += rate * mean of code_j * (patch - codes @ dictionary), then its length is made 1, as
    codes would otherwise shrink for ever while atoms grow. `watch(dictionary)` follows each step.
    Source: Olshausen and Field 1996, Nature 381:607. They keep each code's variance instead.
    """
    if not rate > 0 or steps < 1:
        raise ValueError(f"rate must be above 0 and steps 1 or more, not {rate} and {steps}")

    def update(dictionary, codes, chosen):
        missed = chosen - codes @ dictionary
        return normalize(dictionary + rate / len(chosen) * codes.T @ missed)

    return _learn(patches, atoms, penalty, update, steps, batch, seed, watch)


def online(patches, atoms, penalty, *, batch, epochs, seed, watch=None):
    """Atoms for `patches` [count, pixels]: the best ones for the codes of all batches so far.

    Two sums stand for all codes, z^T z and z^T x; older batches count less and less. An atom that
    is hardly used becomes a patch of the batch. Atoms are at most 1 long. `watch` as above.
    Source: Mairal, Bach, Ponce and Sapiro 2009, «Online dictionary learning for sparse coding».
    """
    check_above_zero("the number of epochs", epochs)
    used, wanted, seen = 0, 0, itertools.count(1)

    def update(dictionary, codes, chosen):
        nonlocal used, wanted
        keep = (1 - 1 / next(seen)) ** 8  # the first codes were made with bad atoms
        used = keep * used + codes.T @ codes
        wanted = keep * wanted + codes.T @ chosen
        return _replace_dead(_update_atoms(dictionary, used, wanted), used, chosen)

    steps = epochs * -(-len(patches) // batch)
    return _learn(patches, atoms, penalty, update, steps, batch, seed, watch)


def _learn(patches, atoms, penalty, update, steps, batch, seed, watch):
    check_samples("patches", patches)
    check_above_zero("the number of atoms", atoms)
    generator = torch.Generator().manual_seed(seed)
    dictionary = normalize(torch.randn(atoms, patches.shape[1], generator=generator).to(patches))
    objectives = []
    for rows in itertools.islice(batches(len(patches), batch, seed), steps):
        chosen = patches[rows.to(patches.device)]
        codes = splitting(chosen, dictionary, penalty, STEPS).values
        objectives.append(objective(chosen, dictionary, codes, penalty).mean())
        dictionary = update(dictionary, codes, chosen)
        if watch:
            watch(dictionary)
    return Learned(dictionary, torch.stack(objectives))


def _update_atoms(dictionary, used, wanted):
    """Atoms that fit better: 1/2 tr(D^T used D) - tr(D^T wanted) never rises.

    A step of 1 / sum_i |used_ji| is short enough for all atoms of a group to move at once, since a
    matrix is at most as curved as its row sums; small groups make it long.
    """
    dictionary = dictionary.clone()
    for group in torch.arange(len(dictionary), device=used.device).split(BLOCK):
        reach = used[group][:, group].abs().sum(dim=1, keepdim=True)
        push = wanted[group] - used[group] @ dictionary
        moved = dictionary[group] + push / reach.clamp(min=torch.finfo(used.dtype).tiny)
        dictionary[group] = moved / moved.norm(dim=1, keepdim=True).clamp(min=1)
    return dictionary


def _replace_dead(dictionary, used, chosen):
    """Atoms of hardly any use become the strongest patches of the batch, as far as these reach."""
    power = used.diagonal()
    dead = (power <= 1e-4 * power.mean()).nonzero()[:, 0]
    fresh = chosen[chosen.norm(dim=1).argsort(descending=True)[: len(dead)]]
    fresh = fresh[fresh.any(dim=1)]
    dictionary[dead[: len(fresh)]] = normalize(fresh)
    return dictionary
