"""What a transformer that guesses the next letter is made of."""

from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

LETTERS = 128  # those of ASCII; the last number stands for every other


class Attention(nn.Module):
    """What each letter sees of those before it, by several heads: x [..., rows, features]."""

    def __init__(self, features, heads):
        super().__init__()
        self.qkv, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(-4, -2).unbind(-3)
        heard = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heard.transpose(-3, -2).flatten(-2))


class PlacedLetters(nn.Module):
    """Numbers of letters [rows, length] as vectors [rows, length, features], which know their
    place; there are so many different `letters`."""

    def __init__(self, length, features, letters=LETTERS):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, features), nn.Embedding(length, features)

    def forward(self, ids):
        return self.letter(ids) + self.place.weight[: ids.shape[-1]]


def letter_loss(scores, following):
    """The mean over letters, in nats, of scores [rows, length, letters]."""
    return cross_entropy(scores.flatten(0, 1), following.flatten())
