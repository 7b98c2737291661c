"""Clusters as networkx graphs, ready for `simulated`."""

from course.cluster.fabric.machines import (
    coates_2013,
    dgx_large,
    dgx_medium,
    dgx_small,
    ethernet_box,
)
from course.cluster.fabric.networks import (
    adapter_each,
    dragonfly,
    fat_tree,
    k_ary_fat_tree,
    one_switch,
    rails,
)
from course.cluster.fabric.servers import (
    DGX_1,
    DGX_1_RINGS,
    DGX_1V,
    DGX_1V_RINGS,
    WIRINGS,
    CubeMesh,
    big_sur,
    dgx_1,
    pcie_tree,
)
