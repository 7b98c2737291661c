"""Servers to choose from: their graphs have the cards, the cables and the speed that they say."""

import pytest

from course.cluster.planning.nodes import A100_ETHERNET, DGX_A100, DGX_H100


@pytest.mark.parametrize("kind", [DGX_A100, DGX_H100, A100_ETHERNET], ids=lambda kind: kind.name)
def test_a_cluster_has_the_cards_of_its_servers(kind):
    graph = kind.cluster(3)
    devices = [device for _, device in graph.nodes(data="device") if device is not None]
    assert len(devices) == 3 * kind.cards and set(devices) == {kind.device}
    servers = {server for _, server in graph.nodes(data="server") if server is not None}
    assert len(servers) == 3


def test_a_share_of_the_arithmetic_is_what_a_card_reaches():
    devices = [device for _, device in DGX_A100.cluster(1, 0.4).nodes(data="device") if device]
    assert {device.flops_per_s for device in devices} == {0.4 * DGX_A100.device.flops_per_s}


def test_a_shared_adapter_is_one_cable_a_server_and_others_one_a_card():
    def cables(kind):
        rate = kind.network.bytes_per_s
        found = kind.cluster(2).edges(data="bytes_per_s")
        return sum(bytes_per_s == rate for *_, bytes_per_s in found)

    assert cables(A100_ETHERNET) == 2
    assert cables(DGX_A100) == 2 * 2 * DGX_A100.cards  # card to adapter, adapter to switch
