"""Agreeing, and training, by talking to neighbours alone."""

from course.parallel.gossip.gossip import DecentralisedSGD, gossip
from course.parallel.gossip.topology import (
    Graph,
    complete_graph,
    gossip_cost,
    metropolis,
    mixing,
    random_regular_graph,
    ring_graph,
    spectral_gap,
    star_graph,
    steps_to_agree,
    wheel_graph,
)
