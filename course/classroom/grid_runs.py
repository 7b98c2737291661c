"""Runs of a transformer for letters on a grid of ranks, and on one process to compare with.

What is cut is named by a plan of `heads_cut`, `outputs_cut` and `inputs_cut`; `train_letters` is
the same on one process and on a grid.
"""

import torch
from torch import nn

from course.classroom.comparison import largest_difference
from course.classroom.letters import letters_net
from course.classroom.steps import second_step
from course.comm import Trace
from course.learning.training.letters import letter_loss
from course.parallel.data import DataParallel
from course.parallel.hybrid import Grid
from course.parallel.tensor import ColumnLinear, HeadAttention, RowLinear, tensor_parallel
from course.worlds import run

LARGE = {"features": 2048, "heads": 16, "blocks": 2, "length": 256}
LARGE_ROWS = 64


def heads_cut(comm, whole):
    """Attention of which each rank has some heads."""
    return HeadAttention(comm, whole.qkv, whole.out, whole.heads, causal=True, algorithm="ring")


def outputs_cut(comm, layer):
    """A linear layer of which each rank has some outputs."""
    return ColumnLinear(comm, layer, algorithm="ring")


def inputs_cut(comm, layer):
    """A linear layer of which each rank has some inputs."""
    return RowLinear(comm, layer, algorithm="ring")


def fresh_net(block):
    """The same small net in double precision wherever it is made."""
    torch.manual_seed(0)
    return letters_net(block).double()


def momentum_sgd(net):
    """What all the small nets are trained by."""
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def train_letters(net, parts, largest=None) -> list:
    """A step with each of the `parts`, pairs (letters, those that follow); the loss before each.
    No gradient is longer than `largest`, if that is given."""
    losses, optimizer = [], momentum_sgd(net)
    for seen, following in parts:
        optimizer.zero_grad()
        loss = letter_loss(net(seen), following)
        loss.backward()
        if largest is not None:
            nn.utils.clip_grad_norm_(net.parameters(), largest)
        optimizer.step()
        losses.append(loss.item())
    return losses


def serially(block, parts, largest=None):
    """The weights after `train_letters` on one process, and its losses."""
    net = fresh_net(block)
    losses = train_letters(net, parts, largest)
    return net.state_dict(), losses


def off(whole, states) -> float:
    """The largest difference of any weight, on any rank, from the whole one of that name."""
    return largest_difference((state[name], whole[name]) for state in states for name in state)


def sent_between(program, ranks, *args):
    """Bytes [sender, receiver] of a run."""
    trace, sent = Trace(), torch.zeros(ranks, ranks, dtype=torch.long)
    run(program, ranks, *args, trace=trace)
    for event in trace.events:
        if event.operation == "send":
            sent[event.rank, event.peer] += event.bytes
    return sent


def large_step(comm, block, plan, axes):
    """A step of a LARGE transformer, cut by a `plan` and copied, on a grid of these `axes`."""
    grid, rows = Grid(comm, **axes), LARGE_ROWS // axes["data"]
    with torch.device(comm.device):
        net = letters_net(block, **LARGE)
        seen = torch.zeros(rows, LARGE["length"], dtype=torch.long)
    copies = DataParallel(tensor_parallel(net, grid["tensor"], plan), grid["data"])
    return second_step(comm, lambda: letter_loss(copies(seen), seen).backward())


def large_weights(block) -> int:
    """How many weights the LARGE transformer has."""
    with torch.device("meta"):
        return sum(each.numel() for each in letters_net(block, **LARGE).parameters())
