"""An array of which every rank has a part, and with which torch computes as if it were whole.

    x = scatter(comm, image, grid=(1, 1, 2, 2))     a part for each of four ranks
    y = relu(conv2d(x, weight, padding=1))          the same line as for a whole image
    y.fetch(region)                                 any box of it, from whoever owns it

Functions of torch find out that they have been given one (`__torch_function__`), and call what
`functions` knows: each computes this rank's part of the result, and fetches what it needs for it.
Source: Coates et al. 2013, section 4 (the idea; the design is ours).
"""

import copy
import functools
import json

import torch

from course.comm.tensors import describe
from course.parallel.array.boxes import Box
from course.parallel.array.fetch import Begin, Fetch, Finish
from course.parallel.array.layout import Layout, evenly, owned_by
from course.parallel.array.operators import Operators
from course.parallel.array.pieces import check_regions

FUNCTIONS = {}  # {function of torch: what it is for arrays}


class DistributedArray(Operators):
    """Rank r of `comm` has `local`, the indices `layout.box(r)` of the global shape.

    Methods and operators are those of a torch tensor, as far as `FUNCTIONS` has them.  What all
    ranks compute alike, such as a sum, is a plain tensor, equal on all ranks.
    Raises ValueError where the layout does not fit the ranks, or the part its box.
    """

    def __init__(self, comm, local: torch.Tensor, layout: Layout):
        if layout.ranks != comm.size:
            raise ValueError(f"rank {comm.rank}: the grid {' x '.join(map(str, layout.grid))} has "
                             f"{layout.ranks} parts, and there are {comm.size} ranks")  # fmt: skip
        self.comm, self.local, self.layout = comm, local, layout
        if tuple(local.shape) != self.box.shape:
            raise ValueError(f"rank {comm.rank} owns {self.box} of the shape {layout.shape}, which "
                             f"is {self.box.shape}: not {tuple(local.shape)}")  # fmt: skip

    @property
    def shape(self) -> torch.Size:
        """The global shape."""
        return torch.Size(self.layout.shape)

    @property
    def box(self) -> Box:
        """The global indices that this rank owns."""
        return self.layout.box(self.comm.rank)

    @property
    def dtype(self):
        return self.local.dtype

    @property
    def device(self):
        return self.local.device

    @property
    def ndim(self) -> int:
        return len(self.layout.cuts)

    def dim(self) -> int:
        return self.ndim

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def numel(self) -> int:
        return Box.whole(self.shape).size

    def is_floating_point(self) -> bool:
        return self.local.is_floating_point()

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        part = describe(self.dtype, self.local.shape)
        return f"<{self.layout}: rank {self.comm.rank} has {self.box}, {part}>"

    def __deepcopy__(self, memo):
        return DistributedArray(self.comm, copy.deepcopy(self.local, memo), self.layout)

    # Any part of it

    def begin_fetch(self, region, fill="zero", boxes=None):
        """Begin to fetch; what this returns has a `wait()` for the region, or for these `boxes` of
        it, a tuple, if not all of it is wanted here.  See `fetch`."""
        regions = region if isinstance(region, list) else told(self.comm, region)
        check_regions(self.layout, regions, fill, self.comm.rank)
        fetch = Fetch(self.comm, self.layout, regions, fill, boxes)
        return Pending(Begin.apply(self.local, fetch), fetch, boxes is not None)

    def fetch(self, region, fill="zero") -> torch.Tensor:
        """The box `region` of the global indices [its shape], from however many ranks own it.

        Collective; each rank has a region of its own.  A list has the regions of all ranks, and
        saves telling them.  Beyond the edges is what `fill` says: "zero", "circular", "reflect",
        "replicate".  Gradients come back to their owners and are added up.
        Cost: to each rank one message from each owner of its region; `pieces.cost` counts them.
        Raises ValueError, and as `Communicator.recv` does.
        """
        return self.begin_fetch(region, fill).wait()

    def redistribute(self, layout: Layout):
        """The same array cut otherwise.  Cost: what changes its owner, in a message a pair."""
        if layout.shape != self.layout.shape:
            raise ValueError(f"rank {self.comm.rank}: an array of shape {tuple(self.shape)} cannot "
                             f"be cut as one of {layout.shape}")  # fmt: skip
        if layout == self.layout:
            return self
        return DistributedArray(self.comm, self.fetch(layout.boxes()), layout)

    def gather(self) -> torch.Tensor:
        """The whole array, on every rank.

        Every rank computes the same with it: on the way back each takes its own part of the slope.
        Cost: every rank sends its part to every other.
        """
        return _Gathered.apply(self.local, self)

    # Torch's functions and methods

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return called(function, *args, **(kwargs or {}))

    def __getattr__(self, name):
        method = getattr(torch.Tensor, name, None)
        if name.startswith("_") or method not in FUNCTIONS:
            raise AttributeError(f"a distributed array has no {name}: gather() makes it whole")
        return functools.partial(FUNCTIONS[method], self)


def called(function, *args, **kwargs):
    """What a function of torch is, for arrays."""
    if function not in FUNCTIONS:
        name = getattr(function, "__name__", function)
        raise NotImplementedError(f"{name} is not known of distributed arrays: gather() first")
    if "input" in kwargs:  # torch's name of the first argument
        args = (kwargs.pop("input"), *args)
    return FUNCTIONS[function](*args, **kwargs)


def implements(*functions):
    """A decorator: this is what these functions of torch are for arrays."""

    def keep(ours):
        FUNCTIONS.update(dict.fromkeys(functions, ours))
        return ours

    return keep


class Pending:
    """A region under way, or `several` boxes of it."""

    def __init__(self, begun, fetch, several):
        self._begun, self._fetch, self._several, self._found = begun, fetch, several, ()

    def wait(self):
        """Block until it is there: the region [its shape], or the boxes."""
        self._found = self._found or Finish.apply(self._begun, self._fetch)
        return self._found if self._several else self._found[0]


def told(comm, region: Box) -> list[Box]:
    """The regions of all ranks.  Collective; cost: one roll call."""
    said = comm.gather_texts(" ".join(f"{a}:{b}" for a, b in region.intervals))
    boxes = [[tuple(map(int, each.split(":"))) for each in text.split()] for text in said]
    return [Box.of(*intervals) for intervals in boxes]


def scatter(comm, x=None, grid=None, *, layout=None, root: int = 0):
    """The parts of rank `root`'s `x`, cut evenly by `grid` [a number an axis], or as `layout` says.

    The others need not give an x.  Cost: a roll call, and p - 1 messages, all of x but the root's
    own part.
    """
    mine = None
    if comm.rank == root:
        mine = list(x.shape), str(x.dtype).removeprefix("torch."), str(x.device), x.requires_grad
    said = comm.gather_texts(json.dumps(mine))
    shape, dtype, device, trained = json.loads(said[root])
    whole = owned_by(root, shape, comm.size)
    if comm.rank != root:
        x = torch.empty(whole.box(comm.rank).shape, dtype=getattr(torch, dtype), device=device)
        x.requires_grad_(trained)
    return DistributedArray(comm, x, whole).redistribute(_layout(shape, grid, layout))


def part(comm, x, grid=None, *, layout=None):
    """The part of `x`, which every rank has whole, that this rank keeps.  Nothing is sent."""
    layout = _layout(x.shape, grid, layout)
    if layout.shape != tuple(x.shape):
        raise ValueError(f"rank {comm.rank}: a tensor of shape {tuple(x.shape)} cannot be cut as "
                         f"one of {layout.shape}")  # fmt: skip
    return DistributedArray(comm, x[layout.box(comm.rank).within(Box.whole(x.shape))], layout)


def _layout(shape, grid, layout) -> Layout:
    if (grid is None) == (layout is None):
        raise ValueError("an array is cut by a grid, or as a layout says: one of them")
    return evenly(shape, grid) if layout is None else layout


class _Gathered(torch.autograd.Function):
    """Whole on every rank; on the way back, this rank's part of what all have computed alike."""

    @staticmethod
    def forward(ctx, local, array):
        ctx.mine = array.box.within(Box.whole(array.shape))
        fetch = Fetch(array.comm, array.layout, [Box.whole(array.shape)] * array.comm.size)
        fetch.begin(local)
        return fetch.finish()[0]

    @staticmethod
    def backward(ctx, slope):
        return slope[ctx.mine], None
