"""Draw a network from its graph: `loads` says what each link of a tree of switches carries, `racks`
which racks stand below which switch, and with how many cables and ports.
"""

import networkx as nx

from course.classroom.figures import COLOURS, named, panels
from course.cluster.inventory import inventory

APART = 0.09  # between the two directions of a cable, in steps between two devices
IDLE = "0.85"
RACK, GAP, POD = 0.8, 0.2, 1.2  # widths of a rack, and between racks and pods
LEVEL = 1.7  # from one row of switches to the next


def heights(graph) -> dict:
    """How many cables each node is above the nearest device."""
    devices = [node for node, device in graph.nodes(data="device") if device is not None]
    return nx.multi_source_dijkstra_path_length(graph, devices, weight=None)


def loads(graph, carried, title, *, names=None, axes=None):
    """A tree of switches, a line for each direction of a cable: `carried` {(node, next node): load}
    says how thick it is, and stands on it between switches; what carries nothing is thin and grey.

    `names` {device: text} are written below the devices.  Returns the axes.
    """
    axes, level = axes or panels(1, width=6.4, height=4.2)[0], heights(graph)
    at, most = _places(graph, level), max(carried.values(), default=1)
    for one, other in graph.edges:
        for ends in ((one, other), (other, one)):
            _link(axes, at, ends, carried.get(ends, 0), most, min(level[one], level[other]) > 0)
    for node, (x, y) in at.items():
        _box(axes, x, y, node if level[node] else (names or {}).get(node, " "), level[node])
    axes.margins(0.05, 0.1)
    named(axes, title, "", "").set_axis_off()
    return axes


def _places(graph, level) -> dict:
    """Where each node is drawn: devices side by side, switches in the middle of their row."""
    width, rows = sum(not each for each in level.values()), {}
    for node in graph:
        rows.setdefault(level[node], []).append(node)
    return {node: ((number + 0.5) * width / len(row), LEVEL * height)
            for height, row in rows.items() for number, node in enumerate(row)}  # fmt: skip


def _link(axes, at, ends, load, most, written):
    """The line of one direction, beside that of the other, and its load near where it begins."""
    (x, y), (to_x, to_y) = at[ends[0]], at[ends[1]]
    side = APART if to_y > y else -APART
    looks = {"color": COLOURS[1] if load == most > 1 else COLOURS[0], "lw": 1 + 1.3 * load,
             "zorder": 2} if load else {"color": IDLE, "lw": 0.8, "zorder": 1}  # fmt: skip
    axes.plot([x + side, to_x + side], [y, to_y], solid_capstyle="butt", **looks)
    if load and written:
        part = 0.2 if to_y > y else 0.3
        axes.text(x + side + part * (to_x - x), y + part * (to_y - y), f"{load:g}", fontsize=7.5,
                  ha="center", va="center", zorder=4,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip


def _box(axes, x, y, text, height):
    look = {"boxstyle": "round,pad=0.25", "facecolor": "white" if height else "#CFE6F5",
            "edgecolor": "0.4"}  # fmt: skip
    axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=look, zorder=5)


def racks(graph, title, axes=None):
    """Every rack of a cluster with the power of its servers, the switch that these are on, what is
    above, and on each line between them how many cables it stands for.  Returns the axes.
    """
    told, below = inventory(graph), _racks_below(graph)
    axes = axes or panels(1, width=3.6 + 0.34 * len(told.rack_watts), height=3.0)[0]
    at, x = {}, 0.0
    for switch, there in below.items():
        begin = x
        for rack, cables in there.items():
            _rack(axes, x, told.rack_watts[rack])
            at[switch, rack] = x + RACK / 2, cables
            x += RACK + GAP
        at[switch] = (begin + x - GAP) / 2, LEVEL
        x += POD
    at |= {node: ((x - POD - GAP) / 2, 2 * LEVEL) for node in told.ports if node not in below}
    _cables(axes, graph, told, below, at)
    axes.set(xlim=(-0.3, x - POD + 0.3), ylim=(-0.2, max(at[node][1] for node in told.ports) + 0.5))
    named(axes, title, "", "").set_axis_off()
    return axes


def _racks_below(graph) -> dict:
    """{switch: {rack: cables}}, for the switches that servers are on."""
    server_rack = {node.split()[1].split(".")[0]: rack
                   for node, rack in graph.nodes(data="rack") if rack is not None}  # fmt: skip
    below = {}
    for switch, ports in graph.nodes(data="ports"):
        for other in graph.neighbors(switch) if ports is not None else ():
            if other.startswith("adapter"):
                rack = server_rack[other.split()[1].split(".")[0]]
                there = below.setdefault(switch, {})
                there[rack] = there.get(rack, 0) + 1
    return below


def _rack(axes, x, watts):
    axes.bar(x + RACK / 2, 1, RACK, -0.1, color="#CFE6F5", edgecolor="0.4")
    axes.text(x + RACK / 2, 0.4, f"{watts / 1e3:.3g} kW", rotation=90, ha="center", va="center",
              fontsize=8)  # fmt: skip


def _cables(axes, graph, told, below, at):
    """Lines with their numbers of cables, and the switches with their ports over them."""
    for switch, there in below.items():
        for rack in there:
            x, cables = at[switch, rack]
            _line(axes, (x, 0.9), at[switch], cables)
    for one, other, cable in graph.edges(data=True):
        if one in told.ports and other in told.ports:
            _line(axes, at[one], at[other], cable["cables"])
    for node, (used, ports) in told.ports.items():
        look = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "0.4"}
        axes.text(*at[node], f"{node}\n{used} of {ports} ports", ha="center", va="center",
                  fontsize=8, bbox=look, zorder=5)  # fmt: skip


def _line(axes, one, other, cables):
    axes.plot(*zip(one, other, strict=True), color="0.5", lw=0.5 + cables / 24, zorder=1)
    middle = [0.5 * a + 0.5 * b for a, b in zip(one, other, strict=True)]
    axes.text(*middle, f"{cables:g}", fontsize=8, ha="center", va="center", zorder=4,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
