"""Whiten photographs before patches are cut, whiten patches by ZCA, and even out contrast.

Neighbouring pixels are nearly equal, and light differs from place to place: both hide structure.
"""

from typing import NamedTuple

import torch

from course.learning.images.photographs import check_image, natural_images, patches_of_all
from course.learning.samples import check_above_zero, check_samples


class Whitening(NamedTuple):
    """A linear map learned from patches: `apply` whitens rows [count, pixels], `undo` returns.

    matrix and inverse are symmetric [pixels, pixels], mean is [pixels].
    """

    matrix: torch.Tensor
    inverse: torch.Tensor
    mean: torch.Tensor

    def apply(self, patches):
        """Patches [count, pixels] whitened."""
        return (patches - self.mean) @ self.matrix

    def undo(self, whitened):
        """The patches [count, pixels] that `apply` made into `whitened`."""
        return whitened @ self.inverse + self.mean


def response(frequency, cutoff):
    """How much the filter multiplies waves of `frequency`: frequency exp(-(frequency / cutoff)^4).

    Rising in step with the frequency evens out natural pictures, whose waves fall like 1 / f; the
    exponential removes the finest waves, which are noise. Both arguments have the same unit.
    Source: Olshausen and Field 1997, Vision Research 37:3311, section 5.
    """
    return frequency * torch.exp(-((frequency / cutoff) ** 4))


def whiten(image, cutoff=0.4, border=4):
    """`image` [height, width] with all frequencies about equally strong, phases kept.

    `cutoff` is in cycles per pixel: 0.4 is 204.8 cycles in a picture of 512. `border` pixels are
    cut from each side, where the transform has joined opposite edges. Costs two FFTs.
    """
    check_image(image)
    if not cutoff > 0 or border < 0:
        raise ValueError(f"cutoff must be above 0 and border 0 or more, not {cutoff} and {border}")
    if min(image.shape) <= 2 * border:
        raise ValueError(f"a border of {border} leaves nothing of an image of {list(image.shape)}")
    height, width = image.shape
    down = torch.fft.fftfreq(height, dtype=image.dtype, device=image.device)
    across = torch.fft.rfftfreq(width, dtype=image.dtype, device=image.device)
    gain = response(torch.hypot(down[:, None], across), cutoff)
    whole = torch.fft.irfft2(torch.fft.rfft2(image) * gain, s=(height, width))
    return whole[border : height - border, border : width - border].contiguous()


def whiten_all(images, variance=0.1, cutoff=0.4):
    """Every image whitened, then all scaled by one number: their mean variance is `variance`.

    One number for all, so that a flat picture stays flatter than a lively one.
    """
    whitened = [whiten(image, cutoff) for image in images]
    if not whitened:
        raise ValueError("there must be at least 1 image to whiten, not 0")
    found = torch.stack([image.var(correction=0) for image in whitened]).mean()
    if not found > 0:
        raise ValueError("the images must vary to be scaled to a variance, and each is constant")
    return [image * (variance / found).sqrt() for image in whitened]


def whitened_patches(size, count, seed, images=None):
    """Patches of whitened photographs as rows [count, size * size], mean 0, variance 1 per pixel.

    Each row's own mean is taken away, then all rows are divided by one number. `images` are the
    photographs of NATURAL where none are given.
    """
    whitened = whiten_all(natural_images() if images is None else images)
    rows = patches_of_all(whitened, size, count, seed).flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    return rows / rows.square().mean().sqrt()


def even_contrast(pictures, constant=0.01):
    """`pictures` [..., height, width], each minus its mean over its standard deviation + constant.

    The constant keeps a flat picture flat instead of blowing up its noise; 0.01 suits pixels in
    [0, 1]. Source: Coates, Lee and Ng 2011, AISTATS 15:215, section 3.2.
    """
    if pictures.dim() < 2 or not pictures.is_floating_point():
        raise ValueError(
            "pictures must be floating point [..., height, width], "
            f"not {pictures.dtype} {list(pictures.shape)}"
        )
    check_above_zero("the constant", constant)
    centred = pictures - pictures.mean(dim=(-2, -1), keepdim=True)
    spread = centred.square().mean(dim=(-2, -1), keepdim=True).sqrt()
    return centred / (spread + constant)


def zca(patches, eps):
    """The Whitening of `patches` [count, pixels]: their covariance becomes the identity.

    The matrix is U (S + eps)^(-1/2) U^T where the covariance is U S U^T: of all maps that whiten
    (eps = 0), the one that changes the patches least. `eps` keeps directions in which
    they hardly vary from being blown up. Costs one eigendecomposition of [pixels, pixels].
    Source: Bell and Sejnowski 1997, Vision Research 37:3327.
    """
    check_samples("patches", patches, least=2)
    mean = patches.mean(dim=0)
    centred = patches - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(patches))
    noise = len(variances) * torch.finfo(patches.dtype).eps * variances[-1]
    stretched = (variances > noise).sum().item()
    if not eps > 0 and (eps < 0 or stretched < len(variances)):
        raise ValueError(
            f"eps must be above 0 for patches that vary in {stretched} of {len(variances)} "
            f"directions, not {eps}"
        )
    spread = (variances.clamp(min=0) + eps).sqrt()
    matrix, inverse = ((directions * scale) @ directions.T for scale in (1 / spread, spread))
    return Whitening(matrix, inverse, mean)
