"""A short transformer, which is told how to attend and where in the text its letters stand."""

from torch import nn


class Transformer(nn.Module):
    """Letters [n] and their positions [n] -> scores of the next letters [n, letters]."""

    def __init__(self, letters, length, attention, width=16, heads=2, layers=2):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, attention) for _ in range(layers))
        self.out = nn.Linear(width, letters)

    def forward(self, ids, positions):
        x = self.letters(ids) + self.places(positions)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


class Layer(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        split = self.qkv(self.norms[0](x)).unflatten(1, (3, self.heads, -1))
        seen = self.attention(*split.permute(1, 2, 0, 3))
        x = x + self.back(seen.transpose(0, 1).flatten(1))
        return x + self.mlp(self.norms[1](x))
