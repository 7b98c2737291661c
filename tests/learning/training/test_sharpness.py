import pytest
import torch
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from course.learning.training.digits import Images, digit_net
from course.learning.training.sharpness import sharpness


def test_it_is_the_largest_eigenvalue_of_all_second_derivatives():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    images, net = Images(x, torch.arange(20) % 3), digit_net(0, (4, 5, 3)).double()
    weights = {name: parameter.detach() for name, parameter in net.named_parameters()}
    sizes = [weight.numel() for weight in weights.values()]

    def loss(vector):
        parts = zip(weights.items(), vector.split(sizes))
        own = {name: part.view_as(weight) for (name, weight), part in parts}
        return cross_entropy(functional_call(net, own, (images.x,)), images.y)

    whole = hessian(loss, torch.cat([weight.flatten() for weight in weights.values()]))
    largest = torch.linalg.eigvalsh(whole).abs().max().item()
    assert sharpness(net, images, tolerance=1e-4) == pytest.approx(largest, rel=1e-2)
