"""Which weights belong to which unit, and what cannot be one."""

import pytest
from torch import nn

from course.parallel.sharded.units import choose_units


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.b(self.a(x))


class Tied(nn.Module):
    """Weights of a unit, of units within, of two units, and of none."""

    def __init__(self):
        super().__init__()
        self.x, self.y, self.more = Two(), Two(), nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
        self.x.b.weight = self.x.a.weight
        self.y.b.bias = self.x.b.bias
        self.own = nn.Parameter(self.x.a.bias.detach())

    def forward(self, x):
        return x


def told(net, units=None):
    names = {p: name for name, p in net.named_parameters()}
    return {unit.name: [names[p] for p in ps] for unit, ps in choose_units(net, units).items()}


def test_children_are_units_and_what_two_of_them_use_is_the_models():
    assert told(Tied()) == {
        "": ["own", "x.b.bias"],
        "x": ["x.a.weight", "x.a.bias"],
        "y": ["y.a.weight", "y.a.bias", "y.b.weight"],
        "more.0": ["more.0.weight", "more.0.bias"],
    }


def test_nested_units_by_a_rule():
    net = Tied()
    found = told(net, lambda part: part in (net.x, net.x.a, net.x.b, net.y.b))
    assert found["x"] == ["x.a.weight"] and found["x.a"] == ["x.a.bias"]
    assert found["x.b"] == [] and found["y.b"] == ["y.b.weight"]
    assert found[""][:2] == ["own", "x.b.bias"]


def test_one_module_in_two_places_is_one_unit():
    net = nn.Sequential(shared := nn.Linear(2, 2), nn.ReLU(), shared)
    assert told(net) == {"": [], "0": ["0.weight", "0.bias"]}


@pytest.mark.parametrize(
    "units, sentence",
    [
        (lambda net: [nn.Linear(2, 2)], "^a unit is a part of the model, not Linear"),
        (lambda net: [net.x, net.x], "^a unit is named once, and the model is one anyway"),
        (lambda net: [net], "^a unit is named once, and the model is one anyway"),
        (lambda net: [net.more], "^more cannot be a unit: ModuleList has no forward of its own"),
    ],
)
def test_what_cannot_be_a_unit(units, sentence):
    net = Tied()
    with pytest.raises(ValueError, match=sentence):
        choose_units(net, units(net))
