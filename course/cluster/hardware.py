"""Devices and cables with their published figures, each with its source.

A source says how far to trust a figure: `found` in public text, `seed` on a slide of the five
decks, `memory` general knowledge (H or M: how sure), `derived` from another figure.
"""

from typing import NamedTuple

from course.comm.counts import required_count

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
M40 = Device("Tesla M40", 6844 * GIGA, 288.4 * GIGA, 12 * GIGA,
             "found: cpu-gpu.alldbin.com; there are boards of 24 GB, too")  # fmt: skip
P100 = Device("Tesla P100", 10_600 * GIGA, 732 * GIGA, 16 * GIGA, "memory H")
V100 = Device("Tesla V100", 15_700 * GIGA, 900 * GIGA, 16 * GIGA, "memory H")
A100 = Device("A100, bf16", 312_000 * GIGA, 1555 * GIGA, 40 * GIGA,
              "memory H: SXM of 40 GB, tensor cores")  # fmt: skip
H100 = Device("H100, bf16", 989_000 * GIGA, 3350 * GIGA, 80 * GIGA, "memory H: SXM, tensor cores")
H200 = Device("H200, bf16", 989_000 * GIGA, 4800 * GIGA, 141 * GIGA,
              "found: stas00/ml-engineering; SXM, tensor cores")  # fmt: skip
B200 = Device("B200, bf16", 2_250_000 * GIGA, 8000 * GIGA, 180 * GIGA,
              "found: stas00/ml-engineering; tensor cores; 180 GB: usable")  # fmt: skip
TPU_V4 = Device("TPU v4, bf16", 275_000 * GIGA, 1200 * GIGA, 32 * 2**30,
                "found: cloud.google.com/tpu/docs/v4")  # fmt: skip

ETHERNET_1G = Cable("1 Gb/s Ethernet", 25 * MICRO, 1 / 8 * GIGA, "latency: memory M")
ETHERNET_10G = Cable("10 Gb/s Ethernet", 10 * MICRO, 10 / 8 * GIGA, "latency: memory M")
FDR = Cable("FDR InfiniBand", 0.5 * MICRO, 54.5 / 8 * GIGA,
            "56 Gb/s, microseconds: seed C, K; 54.5 Gb/s of payload: memory H")  # fmt: skip
EDR = Cable("EDR InfiniBand", 0.5 * MICRO, 100 / 8 * GIGA, "memory H; latency: memory M")
HDR = Cable("HDR InfiniBand", 0.5 * MICRO, 200 / 8 * GIGA, "memory H; latency: memory M")
NDR = Cable("NDR InfiniBand", 0.5 * MICRO, 400 / 8 * GIGA, "memory H; latency: memory M")
PCIE_3 = Cable("PCIe 3.0 x16", 0.5 * MICRO, 15.75 * GIGA, "memory H; latency: memory M")
PCIE_4 = Cable("PCIe 4.0 x16", 0.5 * MICRO, 31.5 * GIGA, "memory H; latency: memory M")
PCIE_5 = Cable("PCIe 5.0 x16", 0.5 * MICRO, 63 * GIGA, "memory H; latency: memory M")
QPI = Cable("QPI, 9.6 GT/s", 0.5 * MICRO, 19.2 * GIGA, "memory M: one link counted of two")
NVLINK_1 = Cable("NVLink 1", 1 * MICRO, 20 * GIGA,
                 "found: datascienceassn.org; latency: memory M")  # fmt: skip
NVLINK_2 = Cable("NVLink 2", 1 * MICRO, 25 * GIGA, "memory H; latency: memory M")
NVLINK_3 = Cable("NVLink 3", 1 * MICRO, 25 * GIGA, "memory H; latency: memory M")
NVLINK_4 = Cable("NVLink 4", 1 * MICRO, 25 * GIGA, "found: mlcommons, 18 links of 900 GB/s in all, "
                 "half of it each way; latency: memory M")  # fmt: skip


def bundle(count: int, cable: Cable) -> Cable:
    """`count` cables that share all messages evenly: as many times the bytes, the same latency.

    What it leaves out: a message that keeps to one cable, and two that meet on it.
    """
    required_count(count, "the number of cables side by side")
    source = f"derived: {count} of it; {cable.source}"
    return cable._replace(name=f"{count} x {cable.name}", bytes_per_s=count * cable.bytes_per_s,
                          source=source)  # fmt: skip


NVLINK_P100 = bundle(4, NVLINK_1)._replace(name="NVLink, 4 links")
NVLINK_V100 = bundle(6, NVLINK_2)._replace(name="NVLink, 6 links")
NVLINK_A100 = bundle(12, NVLINK_3)._replace(name="NVLink 3, 12 links")
NVLINK_H100 = bundle(18, NVLINK_4)._replace(name="NVLink 4, 18 links")
