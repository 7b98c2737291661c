"""How long a recorded step takes on a machine, and which assumption moves that by how much."""

import itertools
import math
from typing import NamedTuple

from course.cluster.fabric import coates_2013
from course.cluster.hardware import ETHERNET_10G, FDR, GTX_680, NDR, PCIE_3
from course.worlds import simulated
from course.worlds.simulator.op_counter import roofline

# «> 1 TFLOPS for ideal workload» (seed C), about a third of the peak; less where an operation does
# little arithmetic a byte, which its memory then holds up.
ACHIEVED = GTX_680._replace(name="GTX 680, achieved", flops_per_s=1e12)


def products_only(operation, flops, nbytes, device) -> float:
    """Seconds of an operation if all that is done number by number were fused into the products."""
    return roofline(operation, flops, nbytes, device) if flops else 0.0


def launched(operation, flops, nbytes, device) -> float:
    """Seconds of an operation whose kernel takes 10 microseconds to start."""
    return 10e-6 + roofline(operation, flops, nbytes, device)


class Machine(NamedTuple):
    """What a replay assumes: GPUs on `inside` cables, `per_server` of them behind one adapter, and
    how they are used.  A server's GPUs are neighbours in a row of the grid of tiles, or in a square
    if `squares`; messages are `bytes` times as long as float32 makes them."""

    device: object = ACHIEVED
    network: object = FDR
    inside: object = PCIE_3
    per_server: int = 4
    squares: bool = False
    overlap: bool = True
    bytes: float = 1.0
    charge: object = roofline

    def report(self, recording):
        """The RunReport of a recorded step on this machine."""
        cards, each = recording.ranks, self.per_server
        graph = coates_2013(-(-cards // each), each, self.device, self.network, self.inside)
        places = _squares(cards, each) if self.squares else range(cards)
        world = simulated(graph, placement=[f"gpu {n}" for n in places], charge=self.charge)
        recording = recording if self.overlap else recording.without_overlap()
        return world.replay(recording if self.bytes == 1 else recording.with_bytes(self.bytes))


def _squares(cards, per_server) -> list[int]:
    """The device of each rank if every server has a square of the grid.

    Raises ValueError if the grid cannot be cut so.
    """
    side, edge = math.isqrt(cards), math.isqrt(per_server)
    if cards <= per_server:  # all in one
        return list(range(cards))
    if edge**2 != per_server or side % edge:
        raise ValueError(f"a grid of {side} x {side} cannot be cut into squares of {per_server}")
    cells = itertools.product(range(side), repeat=2)
    return [((row // edge) * (side // edge) + column // edge) * per_server
            + row % edge * edge + column % edge for row, column in cells]  # fmt: skip


DEFAULT = Machine()


# What is not known, and by how much it may well be otherwise.
ASSUMPTIONS = {
    "arithmetic, 0.5 or 2 TFLOP/s": (
        Machine(device=ACHIEVED._replace(flops_per_s=0.5e12)),
        Machine(device=ACHIEVED._replace(flops_per_s=2e12)),
    ),
    "the cards' memory at half its rate": (
        Machine(device=ACHIEVED._replace(memory_bytes_per_s=ACHIEVED.memory_bytes_per_s / 2)),
        DEFAULT,
    ),
    "all but products fused away": (Machine(charge=products_only), DEFAULT),
    "kernels start in 10 µs": (Machine(charge=launched), DEFAULT),
    "borders wait for the interior": (Machine(overlap=False), DEFAULT),
    "borders half or twice as wide": (Machine(bytes=2.0), Machine(bytes=0.5)),
}
# What is known, it was FDR; other cables show how much would hang on them.
CABLES = {"cables of 10 or 400 Gb/s": (Machine(network=ETHERNET_10G), Machine(network=NDR))}


class Bar(NamedTuple):
    """What one assumption does to the speed-up of the largest network."""

    assumption: str
    low: float
    high: float
