"""A placement is {operation: device}: made by hand, and refused where it cannot be."""


def placed_by_hand(graph, heads) -> dict:
    """The placement of which only the beginnings are told: `heads` {operation: device}.

    Any other operation is where the first one is that it takes from, or on the first device of
    `heads`.  Raises ValueError for names that the graph does not have.
    """
    if not heads:
        raise ValueError("a placement by hand says at least where one operation is, and this none")
    _check_names(graph, heads)
    placement, first = {}, next(iter(heads.values()))
    for name, operation in graph.operations.items():
        before = placement[operation.takes[0]] if operation.takes else first
        placement[name] = heads.get(name, before)
    return placement


def check(costs, placement):
    """Raises ValueError for a placement that leaves out an operation, names what is not there,
    parts operations that share a weight, or has more weights on a device than it holds."""
    graph = costs.graph
    _check_names(graph, placement)
    if missing := [name for name in graph.operations if name not in placement]:
        raise ValueError(f"{len(missing)} operations have no device: {', '.join(missing[:5])}")
    for group in costs.groups:
        device = placement[group[0]]
        for name in group:
            if placement[name] not in costs.devices:
                raise ValueError(f"{name} is on {placement[name]!r}, and the machine has "
                                 f"{', '.join(map(str, costs.devices[:8]))}")  # fmt: skip
            if placement[name] != device:
                raise ValueError(f"{group[0]} and {name} share weights, so they are on one device, "
                                 f"not on {device} and {placement[name]}")  # fmt: skip
    for device, nbytes in costs.used(placement).items():
        if nbytes > costs.memory(device):
            raise ValueError(f"{device} holds {costs.memory(device):.3g} bytes, and the weights "
                             f"placed on it have {nbytes:.3g}")  # fmt: skip


def _check_names(graph, placement):
    for name in placement:
        if name not in graph.operations:
            raise ValueError(f"the graph has no operation {name!r}: it has "
                             f"{', '.join([*graph.operations][:8])}, ...")  # fmt: skip
