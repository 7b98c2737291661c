"""Devices and cables with their published figures, each with its source.

A source says how far to trust a figure: `found` in public text, `seed` on a slide of the five
decks, `memory` general knowledge (H or M: how sure), `derived` from another figure.
"""

from typing import NamedTuple

GIGA, MICRO = 1e9, 1e-6


class Device(NamedTuple):
    """What computes: peak flops (in float32 if its name says nothing else) and bytes to and from
    its memory, a second; how many bytes that holds."""

    name: str
    flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    source: str


class Cable(NamedTuple):
    """What connects: seconds from end to end, bytes a second in each direction."""

    name: str
    latency_s: float
    bytes_per_s: float
    source: str


FREE = Device("free", float("inf"), float("inf"), float("inf"), "computes in no time")
GTX_680 = Device("GTX 680", 3090 * GIGA, 192.3 * GIGA, 4 * GIGA,
                 "found: amdarea51.de, guru3d, hardwaredb; boards of 4 GB: memory M")  # fmt: skip
K20 = Device("Tesla K20", 3520 * GIGA, 208 * GIGA, 5 * GIGA, "memory H")
P100 = Device("Tesla P100", 10_600 * GIGA, 732 * GIGA, 16 * GIGA, "memory H")
V100 = Device("Tesla V100", 15_700 * GIGA, 900 * GIGA, 16 * GIGA, "memory H")
H100 = Device("H100, bf16", 989_000 * GIGA, 3350 * GIGA, 80 * GIGA, "memory H: SXM, tensor cores")

ETHERNET_1G = Cable("1 Gb/s Ethernet", 25 * MICRO, 1 / 8 * GIGA, "latency: memory M")
ETHERNET_10G = Cable("10 Gb/s Ethernet", 10 * MICRO, 10 / 8 * GIGA, "latency: memory M")
FDR = Cable("FDR InfiniBand", 0.5 * MICRO, 54.5 / 8 * GIGA,
            "56 Gb/s, microseconds: seed C, K; 54.5 Gb/s of payload: memory H")  # fmt: skip
EDR = Cable("EDR InfiniBand", 0.5 * MICRO, 100 / 8 * GIGA, "memory H; latency: memory M")
PCIE_3 = Cable("PCIe 3.0 x16", 0.5 * MICRO, 15.75 * GIGA, "memory H; latency: memory M")
NVLINK_P100 = Cable("NVLink, 4 links", 1 * MICRO, 80 * GIGA,
                    "found: datascienceassn.org; latency: memory M")  # fmt: skip
NVLINK_V100 = Cable("NVLink, 6 links", 1 * MICRO, 150 * GIGA, "memory H; latency: memory M")
NVLINK_H100 = Cable("NVLink 4, 18 links", 1 * MICRO, 450 * GIGA, "memory H; latency: memory M")
NDR = Cable("NDR InfiniBand", 0.5 * MICRO, 400 / 8 * GIGA, "memory H; latency: memory M")
