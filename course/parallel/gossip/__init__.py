"""Agreeing, and training, by talking to neighbours alone."""

from course.parallel.gossip.gossip import DecentralisedSGD, gossip
from course.parallel.gossip.topology import (
    Graph,
    check_mixing_matrix,
    complete_graph,
    gossip_cost,
    metropolis,
    random_regular_graph,
    ring_graph,
    spectral_gap,
    star_graph,
    steps_to_agree,
    wheel_graph,
)
