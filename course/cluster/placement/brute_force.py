"""All placements, one after the other: the best of them, where there are few enough."""

import itertools

from course.cluster.placement.costs import Costs
from course.cluster.placement.schedule import scheduled

MOST = 20_000


def by_brute_force(graph, machine, most: int = MOST) -> dict:
    """The placement whose schedule is the shortest, of all of them; of equal ones the first.

    Cost: devices ** operations schedules; those in which a device alone has work for longer than
    the best schedule are not made.  Raises ValueError where there are more than `most`, or none
    fits the memories.
    """
    costs = Costs(graph, machine)
    count = len(costs.devices) ** len(costs.groups)
    if count > most:
        raise ValueError(f"{len(costs.groups)} operations on {len(costs.devices)} devices have "
                         f"{count} placements, more than {most}")  # fmt: skip
    best, shortest = None, float("inf")
    for chosen in itertools.product(costs.devices, repeat=len(costs.groups)):
        pairs = zip(costs.groups, chosen)
        placement = {name: device for group, device in pairs for name in group}
        if costs.fit(costs.used(placement)) and _longest_lane_s(costs, placement) < shortest:
            seconds = scheduled(costs, placement).seconds
            if seconds < shortest:
                best, shortest = placement, seconds
    if best is None:
        raise ValueError(f"none of {count} placements fits the memories of the devices")
    return {name: best[name] for name in graph.operations}


def _longest_lane_s(costs, placement) -> float:
    """Seconds of work of the device that has most: no schedule is shorter."""
    lanes = {}
    for name, device in placement.items():
        lanes[device] = lanes.get(device, 0.0) + costs.seconds(name, device)
    return max(lanes.values())
