"""Three shapes of networks, with the sizes of their sources."""

import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d

from course.cluster.placement import traced
from course.cluster.placement.networks import EncoderDecoder, Inception, vgg


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def test_vgg_11_has_the_published_parameters_and_is_a_chain():
    with torch.device("meta"):
        net, x = vgg(), torch.empty(2, 3, 224, 224)
    assert net(x).shape == (2, 1000)
    assert round(parameters(net) / 1e6) == 133
    graph = traced(net, x)
    assert len(graph.operations) == 11 and all(len(each) <= 1 for each in graph.takers.values())


def test_an_inception_block_has_the_published_maps_and_four_branches():
    with torch.device("meta"):
        net, x = Inception(), torch.empty(2, 192, 28, 28)
    assert net(x).shape == (2, 256, 28, 28)
    assert round(parameters(net) / 1e3) in (159, 163, 164)  # «159K» by its table 1
    assert len(traced(net, x).operations["cat"].takes) == 4


def test_a_ladder_gives_a_class_for_every_pixel_and_has_its_rungs():
    net, x = EncoderDecoder(4, 3, 5), torch.randn(2, 3, 16, 24)
    assert net(x).shape == (2, 5, 16, 24)
    graph = traced(net, x)
    assert [len(graph.takers[f"down_{level}_0"]) for level in range(4)] == [2, 2, 2, 1]


def test_vgg_11_has_its_layers_in_their_order():
    net = vgg(2, 64, 8, 5)
    kinds = "".join({nn.Conv2d: "c", nn.ReLU: "r", nn.MaxPool2d: "p", nn.Flatten: "f",
                     nn.Linear: "l"}[type(layer)] for layer in net)  # fmt: skip
    assert kinds == "crp" + "crp" + 3 * "crcrp" + "flrlrl"
    assert net[-5].in_features == 16 * 2 * 2 and net(torch.ones(1, 3, 64, 64)).shape == (1, 5)


def convolved(x, layer):
    """The convolution that a part of a network begins with, by hand, and no number below 0."""
    conv = layer[0]
    margin = conv.kernel_size[0] // 2
    return conv2d(x, conv.weight, conv.bias, padding=margin).clamp(min=0)


def test_an_inception_block_is_its_branches_one_behind_the_other():
    torch.manual_seed(0)
    net, x = Inception(4, (2, (3, 4), (2, 3), 5)), torch.randn(2, 4, 6, 5)
    branches = [convolved(x, net.one), convolved(convolved(x, net.three[0]), net.three[1]),
                convolved(convolved(x, net.five[0]), net.five[1]),
                convolved(max_pool2d(x, 3, 1, 1), net.pooled[1])]  # fmt: skip
    torch.testing.assert_close(net(x), torch.cat(branches, 1))


def test_a_ladder_puts_what_was_there_on_the_way_down_first():
    torch.manual_seed(0)
    net, x = EncoderDecoder(3, 1, 2), torch.randn(2, 3, 6, 8)
    high = convolved(x, net.down[0])
    low = convolved(max_pool2d(high, 2), net.down[1])
    met = convolved(torch.cat([high, net.up[0](low)], 1), net.meet[0])
    assert net.last.kernel_size == (1, 1)
    torch.testing.assert_close(net(x), net.last(met))
