"""A backward pass in two: the gradients of what came in, and those of the weights, later.

The first pass goes only where something that came in lies behind.  Where a weight branches off,
what arrives there is noted; the second pass begins with that, and does not go the long way again:
both together do what one whole backward does.  Source: Qi et al. 2023; torch's `_backward.py`.

    loss -> [addmm] -> [tanh] -> [addmm] -> what came in        first pass
               |                    |
            weights              weights                        second pass, from what was noted
"""

from typing import NamedTuple

import torch
from torch.autograd.graph import GradientEdge


class Branch(NamedTuple):
    """A `node` of the graph where weights branch off, `slopes`: what arrives there, by its outputs,
    and `leaves`: the nodes of those weights."""

    node: object
    slopes: dict
    leaves: frozenset


class SplitBackward:
    """The backward of the number `root` with respect to `edges`, the gradient edges of what came
    in; None is a root without any.  First `input_gradients`, then `accumulate`, each once."""

    def __init__(self, root, edges):
        self.root, self.edges, self.branches = root, edges, []
        if root is not None:
            self.graph, ends = _graph(root.grad_fn), {edge.node for edge in edges}
            on_path = _reaching(self.graph, ends)
            self.branches = [*self._branches(on_path, ends)]
            if root.grad_fn not in on_path:  # all of it in the second half
                one, leaves = torch.ones_like(root), _leaves(self.graph, [root.grad_fn])
                self.branches = [Branch(root.grad_fn, {0: one}, leaves)]

    def input_gradients(self) -> list:
        """Of each edge; None for one that the root does not depend on."""
        if not self.edges or self.root is None:
            return [None] * len(self.edges)
        noting = [b.node.register_prehook(_note(b.slopes)) for b in self.branches]
        try:
            return torch.autograd.grad(self.root, self.edges, retain_graph=True, allow_unused=True)
        finally:
            for handle in noting:
                handle.remove()

    def accumulate(self):
        """Add the gradients of all weights to what they have."""
        for branches in _sharing(self.branches):
            begin = [(GradientEdge(b.node, i), x) for b in branches for i, x in b.slopes.items()]
            leaves = {node.variable for b in branches for node in b.leaves}
            replaced = [b.node.register_prehook(_instead(b.slopes)) for b in branches]
            try:
                if begin:
                    torch.autograd.backward(*zip(*begin), retain_graph=True, inputs=[*leaves])
            finally:
                for handle in replaced:
                    handle.remove()

    def _branches(self, on_path, ends):
        for node in on_path - ends:
            off = [child for child in self.graph[node] if child not in on_path]
            if leaves := _leaves(self.graph, off):
                yield Branch(node, {}, leaves)


def _graph(root) -> dict:
    """{node: the nodes behind it} of `root` and all nodes behind it."""
    graph, stack = {}, [root]
    while stack:
        node = stack.pop()
        if node not in graph:
            graph[node] = [child for child, _ in node.next_functions if child is not None]
            stack += graph[node]
    return graph


def _reaching(graph, ends) -> set:
    """Those of `ends` that are in the graph, and the nodes that have such behind them."""
    ahead = {}
    for node, behind in graph.items():
        for child in behind:
            ahead.setdefault(child, []).append(node)
    return _closure(ends & graph.keys(), ahead)


def _leaves(graph, roots) -> frozenset:
    """The nodes that accumulate gradients of weights, of all behind `roots`."""
    return frozenset(node for node in _closure(roots, graph) if hasattr(node, "variable"))


def _closure(start, following) -> set:
    """The nodes of `start`, those `following` {node: nodes}, and so on."""
    found, stack = set(), [*start]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += following.get(node, [])
    return found


def _note(slopes):
    def note(arrived):
        slopes.update({i: x for i, x in enumerate(arrived) if x is not None})

    return note


def _instead(slopes):
    """Whoever comes by again changes nothing: another branch of the same weights, or a hook."""

    def replace(arrived):
        return tuple(slopes.get(i) for i in range(len(arrived)))

    return replace


def _sharing(branches) -> list:
    """Groups of branches: in one group those that have a weight in common."""
    groups = []
    for branch in branches:
        touched = [g for g in groups if any(branch.leaves & other.leaves for other in g)]
        groups = [g for g in groups if g not in touched] + [sum(touched, [branch])]
    return groups
