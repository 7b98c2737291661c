"""Take a real photograph by name, list the natural ones, and cut square patches.

The photographs ship inside scikit-image and scikit-learn: nothing is downloaded. Larger sets of
them are fetched once by `python -m course.learning.images stage DIR`.
"""

import difflib
import math

import numpy as np
import torch

from course.learning.images.staging import staged
from course.learning.samples import check_above_zero, check_finite

SCIKIT_IMAGE = (
    *("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel"),
    *("hubble_deep_field", "moon", "retina", "rocket", "stereo_motorcycle"),
)
SCIKIT_LEARN = ("china", "flower")
PHOTOGRAPHS = tuple(sorted(SCIKIT_IMAGE + SCIKIT_LEARN))
HEADS = ("astronaut", "camera", "coins")  # photographs that show a human face, or heads on coins

# Left out: sky, moon, eye and coins (no scene around us), brick (one period, repeated).
NATURAL = tuple(
    name
    for name in PHOTOGRAPHS
    if name not in ("brick", "coins", "hubble_deep_field", "moon", "retina")
)

RED_GREEN_BLUE = torch.tensor([0.2125, 0.7154, 0.0721], dtype=torch.float32)


def photograph(name):
    """The photograph called `name` in grey: float32 [height, width], 0 black to 1 white.

    Raises ValueError for a name that is not in PHOTOGRAPHS.
    """
    if name in PHOTOGRAPHS:
        return grey(_pixels(name).copy())
    near = difflib.get_close_matches(str(name), PHOTOGRAPHS, n=1, cutoff=0)[0]
    raise ValueError(f"no photograph {name!r}, the nearest is {near!r}; there are {PHOTOGRAPHS}")


def natural_images():
    """The photographs of NATURAL, in that order: a list of float32 [height, width] in [0, 1]."""
    return [photograph(name) for name in NATURAL]


def bsds500(split):
    """The photographs of BSDS500's `split`, "train" (200) or "val" (100): a list as above.

    In the order of their file names; each is [321, 481] or [481, 321].
    Raises FileNotFoundError where they are not staged. Source: Arbelaez et al. 2011, PAMI 33:898.
    """
    if split not in ("train", "val"):
        raise ValueError(f"a split of BSDS500 is 'train' or 'val', not {split!r}")
    folder = staged("bsds500", split)
    if not (paths := sorted(folder.glob("*.jpg"))):
        raise FileNotFoundError(f"{folder} must hold photographs (*.jpg), and holds none")
    return [read(path) for path in paths]


def read(path):
    """The picture in the file `path` (JPEG, PNG, PGM, ...) in grey: float32 [height, width].

    Raises ValueError for pixels that are not bytes, OSError for a file that holds no picture.
    """
    from PIL import Image

    with Image.open(path) as picture:
        if picture.mode[0] in "IF":
            raise ValueError(f"pixels must be bytes, and those of {path} are {picture.mode}")
        pixels = picture if picture.mode == "L" else picture.convert("RGB")
        return grey(np.array(pixels))


def patches(image, size, count, seed):
    """`count` squares from random places of `image` [height, width]: [count, size, size], a copy.

    Every place is equally likely and squares may overlap.
    """
    _check_cut(image, size, count)
    return _cut(image, size, count, torch.Generator().manual_seed(seed))


def patches_of_all(images, size, count, seed):
    """`count` squares from random places of all `images`, mixed: [count, size, size], a copy.

    Every place of every image is equally likely, so larger images give more of them.
    """
    if not images:
        raise ValueError("patches are cut from at least 1 image, not from 0")
    for image in images:
        _check_cut(image, size, count)
    places = [math.prod(n - size + 1 for n in image.shape) for image in images]
    generator = torch.Generator().manual_seed(seed)
    likely = torch.tensor(places, dtype=torch.float64)
    origin = torch.multinomial(likely, count, replacement=True, generator=generator)
    cut = images[0].new_empty(count, size, size)
    for number, image in enumerate(images):
        mine = origin == number
        cut[mine] = _cut(image, size, int(mine.sum()), generator)
    return cut


def check_image(image):
    """Raises ValueError unless `image` is floating point, finite and [height, width]."""
    if image.dim() != 2:
        raise ValueError(f"an image has two axes (height, width), not {list(image.shape)}")
    check_finite("an image", image)


def grey(pixels):
    """Bytes [height, width] or [height, width, 3 or 4] as float32 grey [height, width] in [0, 1].

    Colours are weighted by the eye's sensitivity to them; a fourth channel (opacity) is dropped.
    Source: ITU-R BT.709, section 3.2, as scikit-image's `rgb2gray` rounds it.
    """
    pixels = torch.as_tensor(pixels)
    if pixels.dtype != torch.uint8:
        raise ValueError(f"pixels must be bytes (uint8), not {pixels.dtype}")
    if pixels.dim() == 2:
        return pixels.float() / 255
    if pixels.dim() != 3 or pixels.shape[2] not in (3, 4):
        raise ValueError(f"pixels must be [height, width(, 3 or 4)], not {list(pixels.shape)}")
    return pixels[..., :3].float() @ RED_GREEN_BLUE / 255


def _check_cut(image, size, count):
    check_image(image)
    if not 1 <= size <= min(image.shape):
        raise ValueError(f"a patch of {size} x {size} cannot be cut from {list(image.shape)}")
    check_above_zero("the number of patches", count)


def _cut(image, size, count, generator):
    corners = [torch.randint(n - size + 1, (count,), generator=generator) for n in image.shape]
    return image.unfold(0, size, 1).unfold(1, size, 1)[tuple(corners)]


def _pixels(name):
    if name in SCIKIT_LEARN:  # imported here: only the pictures asked for cost time
        from sklearn.datasets import load_sample_image

        return load_sample_image(f"{name}.jpg")
    from skimage import data

    picture = getattr(data, name)()
    return picture[0] if name == "stereo_motorcycle" else picture
