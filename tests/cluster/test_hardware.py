"""Figures that belong together fit together."""

import pytest

from course.cluster import hardware
from course.cluster.hardware import (
    EDR,
    ETHERNET_1G,
    ETHERNET_10G,
    FDR,
    GTX_680,
    HDR,
    NDR,
    NVLINK_A100,
    NVLINK_H100,
    NVLINK_P100,
    NVLINK_V100,
    PCIE_3,
    PCIE_4,
    PCIE_5,
    Cable,
    Device,
    bundle,
)

PARTS = [part for part in vars(hardware).values() if isinstance(part, Cable | Device)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_figure_has_a_source_and_a_size(part):
    assert part.source
    assert all(value > 0 for value in part[1:-1])


def test_payload_is_what_64_of_66_bits_leave():
    assert FDR.bytes_per_s * 8 == pytest.approx(4 * 14.0625e9 * 64 / 66, rel=1e-3)
    assert EDR.bytes_per_s * 8 == pytest.approx(4 * 25.78125e9 * 64 / 66, rel=1e-3)
    assert PCIE_3.bytes_per_s * 8 == pytest.approx(16 * 8e9 * 128 / 130, rel=1e-3)
    assert PCIE_5.bytes_per_s == 2 * PCIE_4.bytes_per_s == 4 * PCIE_3.bytes_per_s


def test_all_nvlinks_of_a_gpu():
    """4 x 20, 6 x 25, 12 x 25 and 18 x 25 GB/s each way."""
    cables = NVLINK_P100, NVLINK_V100, NVLINK_A100, NVLINK_H100
    assert [cable.bytes_per_s for cable in cables] == [80e9, 150e9, 300e9, 450e9]


def test_cables_bundle_are_as_wide_as_all_and_as_long_as_one():
    three = bundle(3, EDR)
    assert three.bytes_per_s == 3 * EDR.bytes_per_s
    assert three.latency_s == EDR.latency_s
    assert three.source.startswith("derived: 3 of it")
    with pytest.raises(ValueError, match="cables side by side is a whole number, 1 or more, not 0"):
        bundle(0, EDR)


def test_a_link_generation_is_no_slower_than_the_one_before():
    rates = [ETHERNET_1G, ETHERNET_10G, FDR, EDR, HDR, NDR]
    assert [cable.bytes_per_s for cable in rates] == sorted(c.bytes_per_s for c in rates)


def test_a_billion_parameters_take_half_a_minute_on_ethernet():
    """Deck C: 1 B parameters = 30 s; 0.8 s for 1 MB of neurons of 100 images."""
    assert 4e9 / ETHERNET_1G.bytes_per_s == 32.0
    assert 100e6 / ETHERNET_1G.bytes_per_s == 0.8
    assert 4e9 / FDR.bytes_per_s == pytest.approx(0.59, abs=0.005)


def test_a_gtx_680_is_a_third_used_at_one_teraflop():
    assert 1e12 / GTX_680.flops_per_s == pytest.approx(1 / 3, abs=0.01)
    assert GTX_680.flops_per_s / GTX_680.memory_bytes_per_s == pytest.approx(16, abs=0.1)
