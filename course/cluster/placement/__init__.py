"""Which device does what of a network: a graph of operations, placed, simulated and executed.

graph = traced(module, example)           torch.fx's calls with their flops and bytes
placement = heft(graph, machine)          {operation: device}; or placed_by_hand, by_brute_force
placed = schedule(graph, placement, machine)      placed.seconds
execute(placed, example)                  the module's answer, by a rank for each device
"""

from course.cluster.placement.brute_force import by_brute_force
from course.cluster.placement.execution import execute
from course.cluster.placement.hand import placed_by_hand
from course.cluster.placement.heft import heft
from course.cluster.placement.schedule import schedule
from course.cluster.placement.trace import traced
