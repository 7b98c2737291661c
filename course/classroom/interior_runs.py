"""Runs of one layer whose halo travels while its interior is computed, or before it.

`layer(comm, x, weight, early)` computes one on horizontal strips; it returns its answers and the
moments (s) at which it began, had waited, had the interior, had waited again, and ended.
"""

import torch
from torch.nn.functional import conv2d

from course import worlds
from course.classroom.tile_runs import halo_boxes
from course.parallel.array import Box, part


def end_rows(x, h):
    """Of every rank, what its first h rows of answers see, and what its last h rows see."""
    ends = [], []
    for box in x.layout.boxes():
        images, maps, (top, bottom), columns = box.intervals
        ends[0].append(Box.of(images, maps, (top - h, top + 2 * h), columns))
        ends[1].append(Box.of(images, maps, (bottom - 2 * h, bottom + h), columns))
    return ends


def layer_moments(comm, layer, early, maps, side, kernel, turns=1):
    """The moments of this rank's quickest turn, with so many maps of side x side places."""
    weight = torch.ones(maps, maps, kernel, kernel, device=comm.device)
    x = part(comm, torch.ones(1, maps, side, side, device=comm.device), (1, 1, comm.size, 1))
    found = []
    for _ in range(turns):
        comm.barrier()
        found.append(layer(comm, x, weight, early)[1])
    return min(found, key=lambda moments: moments[-1] - moments[0])


def imagined_moments(layer, early):
    """Those of an inner one of four imagined P100s on 10 Gb/s: 64 maps, 512 x 512, windows of 3."""
    from course.cluster import fabric, hardware  # real ranks go without

    cluster = fabric.one_switch(4, hardware.P100, hardware.ETHERNET_10G)
    world = worlds.simulated(cluster, device="meta")
    return worlds.run(layer_moments, 4, layer, early, 64, 512, 3, on=world, checked=False)[1]


def real_moments(layer, early):
    """Those of the first of two hosts with 10 Mb/s: 16 maps of 1,024 x 1,024, windows of 5."""
    on = worlds.hosts(2, rate="10mbit")
    return worlds.run(layer_moments, 2, layer, early, 16, 1024, 5, 3, on=on, checked=False)[0]


def square_layer(comm, across, early):
    """One layer of 64 maps of 512 x 512 places with windows of 3 x 3, on square tiles."""
    weight = torch.empty(64, 64, 3, 3, device=comm.device)
    places = torch.empty(1, 64, 512, 512, device=comm.device)
    x = part(comm, places, (1, 1, across, across)) if across > 1 else places
    if early or across == 1:
        return conv2d(x, weight, padding=1).shape
    return conv2d(x.fetch(halo_boxes(x)), weight).shape


def square_layer_ms(cable, across, early) -> float:
    """How long `square_layer` takes on imagined P100s, as many as there are tiles."""
    from course.cluster import fabric, hardware  # as above

    cluster = fabric.one_switch(across**2, hardware.P100, cable)
    world = worlds.simulated(cluster, device="meta")
    worlds.run(square_layer, across**2, across, early, on=world, checked=False)
    return 1e3 * world.report.seconds
