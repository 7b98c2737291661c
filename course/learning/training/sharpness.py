"""How sharp is the loss of a network where its weights are now?  The largest curvature there."""

from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from course.learning.training.descent import sharpest_curvature


def sharpness(net, images, tolerance=0.02) -> float:
    """The largest second derivative of the mean loss on `images` over all weights of `net`.

    Costs a gradient of the gradient for each step of `descent.sharpest_curvature`, which raises.
    """
    shapes = dict(net.named_parameters())

    def loss(vector):
        parts = vector.split([parameter.numel() for parameter in shapes.values()])
        weights = {name: part.view_as(shapes[name]) for name, part in zip(shapes, parts)}
        return cross_entropy(functional_call(net, weights, (images.x,)), images.y)

    vector = parameters_to_vector(net.parameters())
    return float(sharpest_curvature(loss, vector, tolerance=tolerance))
