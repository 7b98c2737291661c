"""Networks that the tests place, small ones, and made up at random."""

import random

import torch
from torch import nn

from course.cluster.placement.networks import EncoderDecoder, Inception, vgg

SMALL = {
    "chain": (lambda: vgg(2, 32, 8, 5), (2, 3, 32, 32)),
    "branches": (lambda: Inception(4, (2, (3, 4), (2, 3), 3)), (2, 4, 6, 6)),
    "ladder": (lambda: EncoderDecoder(3, 2, 2), (2, 3, 8, 8)),
}


def small(name):
    """A network of SMALL in double precision, and its input."""
    torch.manual_seed(0)
    make, shape = SMALL[name]
    return make().double(), torch.randn(shape, dtype=torch.float64)


class Random(nn.Module):
    """Layers that each read one or two answers before them, tied or in two parts by chance."""

    def __init__(self, seed, count=8, features=4):
        super().__init__()
        torch.manual_seed(seed)
        draw = random.Random(seed)
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(count))
        self.reads = [[draw.randrange(number + 1) for _ in range(draw.choice((1, 1, 2)))]
                      for number in range(count)]  # fmt: skip
        self.kinds = [draw.choice(("plain", "tied", "parts", "activated")) for _ in range(count)]
        self.ends = draw.sample(range(count + 1), draw.choice((1, 2, 3)))

    def forward(self, x):
        seen = [x]
        for number, (reads, kind) in enumerate(zip(self.reads, self.kinds)):
            y = sum(seen[read] for read in reads)
            y = self.layers[0 if kind == "tied" else number](y)
            if kind == "parts":
                left, right = y.chunk(2, -1)
                y = torch.cat([right, left.tanh()], -1)
            seen.append(y.relu() if kind == "activated" else y)
        return seen[-1], [seen[end] for end in self.ends]
