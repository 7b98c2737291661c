"""Sparse codes and dictionaries, against scikit-learn's: the same patches, one thread each."""

import contextlib
import functools
import statistics
import warnings

import torch

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, seconds
from course.learning.images.whitening import whitened_patches
from course.learning.sparse.dictionary import online
from course.learning.sparse.sparse_coding import encode, objective

PENALTY, ATOMS, BATCH = 1.0, 392, 256
METHODS = {
    "lasso_cd, float64": ("float64", {"algorithm": "lasso_cd"}),
    "lasso_cd, float32": ("float32", {"algorithm": "lasso_cd"}),
    "lasso_cd, float32, max_iter=100": ("float32", {"algorithm": "lasso_cd", "max_iter": 100}),
    "lasso_lars, float32, of 400 patches": ("float32", {"algorithm": "lasso_lars"}),
}
FEW = 400  # what is slow codes some patches only, and the others code as many
SWEEPS = 20  # of coordinate descent per batch: over one epoch 50 took as long, 1 000 four times


def measure(turns) -> Table:
    """Rows for the codes against each method, and one for the dictionary."""
    patches = whitened_patches(14, 24_000, seed=0)
    train, held = patches[:20_000], patches[20_000:]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says of many patches that it has not settled
        dictionary = online(train, ATOMS, PENALTY, batch=BATCH, epochs=2, seed=0).dictionary
        rows = [coding(name, held, dictionary, turns) for name in METHODS]
        rows.append(learning(train, held, min(turns, 2)))
    return Table("Sparse coding against scikit-learn", rows, NOTE)


NOTE = """Codes of 4 000 whitened 14x14 patches, 392 atoms, penalty 1, about 7 % not zero; \
excess: how far the worst patch is above its least objective (float64, gap 1e-10). Dictionary: 392 \
atoms from 20 000 patches, batch 256, float32; ours stops after the first tenth of an epoch at \
which the mean objective of 1 000 patches not seen is that of MiniBatchDictionaryLearning(\
max_iter=10) or below; its early stopping is off, as it ended after two epochs. ratio = \
scikit-learn's time / ours."""


def coding(name, patches, dictionary, turns) -> dict:
    kind, options = METHODS[name]
    patches = patches[:FEW] if str(FEW) in name else patches
    theirs = functools.partial(scikit_codes, patches, dictionary, kind, options)
    ours = functools.partial(encode, patches, dictionary, PENALTY)
    times = in_turns({"ours": lambda: seconds(ours), "theirs": lambda: seconds(theirs)}, turns)
    exact = encode(patches.double(), dictionary.double(), PENALTY, tolerance=1e-10).values
    excess = [
        (cost(patches, dictionary, codes) / cost(patches, dictionary, exact) - 1).max().item()
        for codes in (ours().values, torch.from_numpy(theirs()))
    ]
    return row(f"codes, {name}", times, *(f"excess {each:.0e}" for each in excess)) | judged(
        Ratio.of(times["theirs"], times["ours"]), Aim("≥", 2.0)
    )


def learning(train, held, turns) -> dict:
    held, learner, ours, theirs = held[:1_000], scikit_learner(), [], []
    theirs.append(seconds(lambda: learner.fit(train.numpy())))
    goal = height(held, torch.from_numpy(learner.components_))
    steps, reached = steps_to(goal, train, held)
    ours.append(seconds(lambda: stopped(train, steps)))
    for _ in range(turns - 1):  # no turn to warm up: one of theirs takes half a minute
        theirs.append(seconds(lambda: learner.fit(train.numpy())))
        ours.append(seconds(lambda: stopped(train, steps)))
    return row("dictionary", {"ours": ours, "theirs": theirs}, f"{reached:.3f}", f"{goal:.3f}") | (
        judged(Ratio.of(theirs, ours), Aim("≥", 3.0))
    )


def row(name, times, ours_reached, theirs_reached) -> dict:
    return {
        "what": name,
        "ours, s": f"{statistics.median(times['ours']):.2f}",
        "scikit-learn, s": f"{statistics.median(times['theirs']):.2f}",
        "ours reached": ours_reached,
        "scikit-learn reached": theirs_reached,
    }


def scikit_codes(patches, dictionary, kind, options):
    from sklearn.decomposition import sparse_encode

    patches, dictionary = (each.numpy().astype(kind) for each in (patches, dictionary))
    return sparse_encode(patches, dictionary, alpha=PENALTY, **options)


def scikit_learner():
    from sklearn.decomposition import MiniBatchDictionaryLearning

    return MiniBatchDictionaryLearning(
        ATOMS, alpha=PENALTY, max_iter=10, batch_size=BATCH, fit_algorithm="cd", random_state=0,
        transform_max_iter=SWEEPS, tol=0, max_no_improvement=None, n_jobs=1,
    )  # fmt: skip


class Enough(Exception):
    """Says that a dictionary is as good as it has to be."""


def stopped(train, steps, look=lambda dictionary, step: None):
    """Learn online until `steps` steps are done; `look` sees the dictionary after each."""
    done = 0

    def watch(dictionary):
        nonlocal done
        done += 1
        look(dictionary, done)
        if done == steps:
            raise Enough

    with contextlib.suppress(Enough):
        online(train, ATOMS, PENALTY, batch=BATCH, epochs=10, seed=0, watch=watch)


def steps_to(goal, train, held):
    """After how many steps the dictionary is at `goal` or below, and where it is then."""
    found = {}

    def look(dictionary, step):
        if step % 8 == 0 and (reached := height(held, dictionary)) <= goal:
            found[step] = reached
            raise Enough

    stopped(train, -1, look)
    return found.popitem() if found else (-1, float("nan"))


def cost(patches, dictionary, codes):
    return objective(patches.double(), dictionary.double(), codes.double(), PENALTY)


def height(patches, dictionary) -> float:
    """The mean objective of `patches`, with their best codes."""
    return cost(patches, dictionary, encode(patches, dictionary, PENALTY).values).mean().item()


@contextlib.contextmanager
def one_thread():
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
