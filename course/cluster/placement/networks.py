"""Networks of three shapes to place: a chain, branches that meet again, and a ladder of skips."""

import torch
from torch import nn

VGG_11 = ((1,), (2,), (4, 4), (8, 8), (8, 8))  # maps of each 3 x 3 layer in units of the first's
INCEPTION_3A = (64, (96, 128), (16, 32), 32)  # maps: 1 x 1; before and of 3 x 3, 5 x 5; after pool


def vgg(width: int = 64, side: int = 224, hidden: int = 4096, classes: int = 1000) -> nn.Sequential:
    """A chain: [n, 3, side, side] to [n, classes] by the layers of VGG-11, `side` at least 32.

    Source: Simonyan & Zisserman 2014, configuration A.
    """
    layers, maps = [], 3
    for stage in VGG_11:
        for factor in stage:
            layers += [nn.Conv2d(maps, factor * width, 3, padding=1), nn.ReLU()]
            maps = factor * width
        layers.append(nn.MaxPool2d(2))
    pixels = (side // 32) ** 2
    layers += [nn.Flatten(), nn.Linear(maps * pixels, hidden), nn.ReLU(),
               nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)]  # fmt: skip
    return nn.Sequential(*layers)


class Inception(nn.Module):
    """Four branches that read one input and meet again: [n, maps, h, w] to [n, all maps, h, w].

    Source: Szegedy et al. 2014, «Going deeper with convolutions», figure 2b and table 1.
    """

    def __init__(self, maps: int = 192, widths=INCEPTION_3A):
        super().__init__()
        one, (before_3, three), (before_5, five), pooled = widths
        self.one = _convolved(maps, one, 1)
        self.three = nn.Sequential(_convolved(maps, before_3, 1), _convolved(before_3, three, 3))
        self.five = nn.Sequential(_convolved(maps, before_5, 1), _convolved(before_5, five, 5))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), _convolved(maps, pooled, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


class EncoderDecoder(nn.Module):
    """Down `depth` times to half the side and twice the maps, and up again, beside what was there
    on the way down: [n, 3, side, side] to [n, classes, side, side], side a multiple of 2^depth.

    Source: Ronneberger, Fischer & Brox 2015 (U-Net), with padding and one layer for two.
    """

    def __init__(self, width: int = 64, depth: int = 3, classes: int = 2):
        super().__init__()
        maps = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(_convolved(*pair, 3) for pair in zip([3, *maps], maps))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * here, here, 2, 2) for here in maps[:-1])
        self.meet = nn.ModuleList(_convolved(2 * here, here, 3) for here in maps[:-1])
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for down in self.down[:-1]:
            skips.append(down(x))
            x = self.pool(skips[-1])
        x = self.down[-1](x)
        for level in reversed(range(len(skips))):
            x = self.meet[level](torch.cat([skips[level], self.up[level](x)], 1))
        return self.last(x)


def _convolved(maps, more, side):
    return nn.Sequential(nn.Conv2d(maps, more, side, padding=side // 2), nn.ReLU())
