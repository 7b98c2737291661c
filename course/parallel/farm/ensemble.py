"""An ensemble: several networks, each trained alone, that predict together."""

import math

import torch
from torch import nn


class Ensemble(nn.Module):
    """The mean of what `members` predict for x [rows, ...], as log probabilities [rows, classes].

    Raises ValueError for no members.  Source: Dietterich 2000; Krizhevsky et al. 2012 averaged
    seven networks.
    """

    def __init__(self, members):
        super().__init__()
        self.members = nn.ModuleList(members)
        if not self.members:
            raise ValueError("an ensemble has 1 member at least, not 0")

    def forward(self, x):
        told = torch.stack([member(x).log_softmax(dim=1) for member in self.members])
        return told.logsumexp(dim=0) - math.log(len(self.members))
