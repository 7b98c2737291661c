"""Ordinary networks of torch, which know nothing of tiles."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions and a short cut, which has one of its own where shapes change."""

    def __init__(self, maps, more, stride):
        super().__init__()
        self.first = nn.Conv2d(maps, more, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(more)
        self.second = nn.Conv2d(more, more, 3, 1, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(more)
        self.short = nn.Conv2d(maps, more, 1, stride, bias=False)

    def forward(self, x):
        y = functional.relu(self.norm(self.first(x)), inplace=True)
        y = self.last_norm(self.second(y))
        y += self.short(x)
        return torch.relu(y)


class ResNet(nn.Module):
    """A small one: strides, a pool, one mean of all places, and classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.mean, self.classes = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 5)

    def forward(self, x):
        return self.classes(self.mean(self.blocks(self.stem(x))).flatten(1))


class UNet(nn.Module):
    """Down and up again, with what was there before beside it: a class for every pixel."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        self.lower = nn.Sequential(nn.Conv2d(4, 6, 2, 2), nn.GroupNorm(2, 6), nn.GELU())
        self.up = nn.ConvTranspose2d(6, 4, 2, 2)
        self.drop, self.out = (
            nn.Dropout(0.3),
            nn.Conv2d(8, 5, 3, padding=1, padding_mode="circular"),
        )

    def forward(self, x):
        y = torch.tanh(self.down(x))
        return self.out(self.drop(torch.cat([y, self.up(self.lower(y))], 1)))
