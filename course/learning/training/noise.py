"""How noisy is a gradient?  One number, in images, from the gradients of single images."""


def gradient_noise_scale(gradients) -> float:
    """tr(Sigma) / |G|^2 of the gradients [images, parameters] of single images.

    At a batch of so many images the noise of the mean is as long as the gradient G itself.
    Source: McCandlish et al. 2018, «An empirical model of large-batch training», B_simple.
    """
    mean = gradients.mean(dim=0)
    return float(gradients.var(dim=0).sum() / mean.square().sum())
