"""HEFT: list scheduling by upward ranks, each operation where it ends first.

Source: Topcuoglu, Hariri & Wu 2002, «Performance-effective and low-complexity task scheduling for
heterogeneous computing».
"""

from course.cluster.placement.costs import Costs


def heft(graph, machine) -> dict:
    """{operation: device} by Heterogeneous Earliest Finish Time, with insertion into gaps.

    It never goes back on a choice, and thinks that all transfers have their links to themselves.
    Added to the source: operations that share a weight follow the first of them, and a device
    whose memory is full takes no more.  Raises ValueError where some weights fit nowhere.
    """
    costs = Costs(graph, machine)
    group_of = {name: group for group in costs.groups for name in group}
    placement, ends, busy = {}, {}, {device: [] for device in costs.devices}
    for name in sorted(graph.operations, key=lambda name: -costs.upward_ranks[name]):
        placed = [placement[name]] if name in placement else []
        choices = placed or _with_room(costs, placement, group_of[name])
        starts = {device: _start(costs, name, device, placement, ends, busy) for device in choices}
        device = min(choices, key=lambda device: starts[device] + costs.seconds(name, device))
        placement.update(dict.fromkeys(group_of[name], device))
        ends[name] = starts[device] + costs.seconds(name, device)
        busy[device] = sorted([*busy[device], (starts[device], ends[name])])
    return {name: placement[name] for name in graph.operations}


def _with_room(costs, placement, group) -> list:
    """The devices that have room for the weights of `group` beside those placed before."""
    used, more = costs.used(placement), costs.weight_bytes(group)
    found = [
        device for device in costs.devices if used.get(device, 0) + more <= costs.memory(device)
    ]
    if not found:
        raise ValueError(f"{more:.3g} bytes of weights of {group[0]} fit on none of "
                         f"{len(costs.devices)} devices beside what is there")  # fmt: skip
    return found


def _start(costs, name, device, placement, ends, busy) -> float:
    """The earliest second at which all that an operation takes is on `device`, and it is idle for
    long enough."""
    start = 0.0
    for source in costs.graph.operations[name].takes:
        sent = ends[source]
        if placement[source] != device:
            nbytes = costs.graph.operations[source].out_bytes
            sent += costs.way(placement[source], device).seconds(nbytes)
        start = max(start, sent)
    for began, ended in busy[device]:
        if start + costs.seconds(name, device) <= began:
            break
        start = max(start, ended)
    return start
