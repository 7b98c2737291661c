"""The network of a plan: a transformer as sizes, and as stages of real modules that ranks train."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import gelu

from course.cluster.scaling.work import work
from course.learning.training.letters import Attention, PlacedLetters
from course.parallel.array.layout import even_cuts


class Transformer(NamedTuple):
    """Sizes of a network that guesses the next of `symbols` letters in rows of `length`.

    `rest_flops`: arithmetic of a device that is not there, for each letter of a block, forward, so
    that a small network may take the time of a large one (`course.cluster.scaling.work`).
    """

    features: int
    heads: int
    blocks: int
    length: int
    symbols: int = 256
    rest_flops: float = 0.0

    @property
    def weights(self) -> int:
        """All of them: about 12 features^2 in a block."""
        n = self.features
        ends = (2 * self.symbols + self.length) * n + self.symbols
        return ends + self.blocks * (12 * n * n + 13 * n)

    @property
    def block_flops(self) -> float:
        """Of a block forward, for each letter: of its products, its attention, and what rests."""
        return 24 * self.features**2 + 4 * self.length * self.features + self.rest_flops

    @property
    def letter_flops(self) -> float:
        """Of all blocks, forward and backward, for each letter; about 6 for each weight."""
        return 3 * self.blocks * self.block_flops

    def stage_blocks(self, stages: int) -> list[int]:
        """How many blocks each stage of a pipeline has."""
        cuts = even_cuts(self.blocks, stages)
        return [stop - start for start, stop in zip(cuts, cuts[1:])]

    def stages(self, count: int, seed: int = 0) -> list[nn.Sequential]:
        """The whole network in so many stages; the same weights whatever their number."""
        torch.manual_seed(seed)
        parts = [TransformerBlock(self) for _ in range(self.blocks)]
        cuts, first = (
            even_cuts(self.blocks, count),
            PlacedLetters(self.length, self.features, self.symbols),
        )
        stages = [nn.Sequential(*parts[a:b]) for a, b in zip(cuts, cuts[1:])]
        stages[0].insert(0, first)
        stages[-1].append(nn.Linear(self.features, self.symbols))
        return stages


class TransformerBlock(nn.Module):
    """Attention, then two linear layers, on x [rows, length, features], which is added to both."""

    def __init__(self, sizes):
        super().__init__()
        n = sizes.features
        self.before, self.between = nn.LayerNorm(n), nn.LayerNorm(n)
        self.attention = Attention(n, sizes.heads)
        self.up, self.down = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.rest_flops = sizes.rest_flops  # a letter; `stage_of` divides it over a tensor group

    def forward(self, x):
        x = x + self.attention(self.before(x))
        x = x + self.down(gelu(self.up(self.between(x))))
        return work(x, self.rest_flops * x.shape[:-1].numel()) if self.rest_flops else x
