"""A grid of ranks: one communicator for each of its axes, from one call.

grid = Grid(comm, data=2, tensor=2)
all_reduce(grid["tensor"], x)               among the ranks that share this rank's data
grid.coordinates                            {"data": 0, "tensor": 1}
"""

import itertools
import math

from course.comm.counts import required_count


class Grid:
    """The ranks of `comm` in a grid of named `axes`, the last axis fastest: ranks that are
    neighbours along it have consecutive numbers, and so it is the one to keep within a node.

    grid["data"] is the communicator of the ranks that differ from this one along that axis alone;
    its ranks are coordinates.  Axes of one rank are worth naming: a program asks for them.
    Cost: a split for each axis.  Raises ValueError unless the sizes multiply to the ranks, and
    where ranks name other axes, or in another order.
    """

    def __init__(self, comm, **axes):
        self.comm = comm
        self.axes = {name: required_count(size, name, comm.rank) for name, size in axes.items()}
        if math.prod(axes.values()) != comm.size or not axes:
            product = " x ".join(f"{name} {size}" for name, size in axes.items()) or "nothing"
            raise ValueError(
                f"rank {comm.rank}: the axes of a grid multiply to its number of ranks: {product} "
                f"makes {math.prod(axes.values())}, and there are {comm.size}"
            )
        self.coordinates = self.at(comm.rank)
        self._comms = {}
        for name in axes:
            self.over(name)

    def at(self, rank: int) -> dict:
        """Where a rank of `comm` is: its coordinate along each axis."""
        if rank not in range(self.comm.size):
            raise ValueError(f"rank {self.comm.rank}: the ranks of this grid are 0 to "
                             f"{self.comm.size - 1}, not {rank}")  # fmt: skip
        coordinates = {}
        for name, size in reversed(self.axes.items()):
            rank, coordinates[name] = divmod(rank, size)
        return {name: coordinates[name] for name in self.axes}

    def rank(self, **coordinates) -> int:
        """The rank of `comm` at these coordinates; where one is not given, this rank's own."""
        place, rank = self.coordinates | coordinates, 0
        for name, size in self.axes.items():
            self._required(place)
            if place[name] not in range(size):
                raise ValueError(
                    f"rank {self.comm.rank}: coordinates along {name} go from 0 to {size - 1}, "
                    f"not {place[name]}"
                )
            rank = rank * size + place[name]
        return rank

    def groups(self, *names) -> list[tuple]:
        """The ranks of `comm` that the axes `names` join, group by group: who is with whom."""
        self._required(names)
        apart = [name for name in self.axes if name not in names]
        by_place = itertools.groupby(
            sorted((tuple(self.at(r)[name] for name in apart), r) for r in range(self.comm.size)),
            key=lambda entry: entry[0],
        )
        return [tuple(rank for _, rank in group) for _, group in by_place]

    def over(self, *names):
        """The communicator of the ranks that differ along these axes alone, in the order of ranks.

        Cost: a split, the first time that it is asked for, by all ranks of the grid.
        """
        self._required(names)
        chosen = tuple(name for name in self.axes if name in names)
        if chosen not in self._comms:
            apart = [self.coordinates[name] for name in self.axes if name not in chosen]
            made = self.comm.split((*chosen, *apart))
            if made.size != math.prod(self.axes[name] for name in chosen):
                raise ValueError(
                    f"rank {self.comm.rank}: all ranks of a grid name its axes alike, and ask for "
                    f"groups in one order: {made.size} came to that of {self} over "
                    f"{', '.join(chosen) or 'nothing'}"
                )
            self._comms[chosen] = made
        return self._comms[chosen]

    def __getitem__(self, name: str):
        self._required((name,))
        return self._comms[(name,)]

    def _required(self, names):
        for name in names:
            if name not in self.axes:
                known = ", ".join(self.axes)
                raise ValueError(
                    f"rank {self.comm.rank}: the axes of this grid are {known}, not {name!r}"
                )

    def __repr__(self):
        place = ", ".join(f"{name} {self.coordinates[name]} of {size}"
                          for name, size in self.axes.items())  # fmt: skip
        return f"<rank {self.comm.rank} of {self.comm.size}: {place}>"
