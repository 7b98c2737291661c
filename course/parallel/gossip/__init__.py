"""Agreeing, and training, by talking to neighbours alone."""

from course.parallel.gossip.gossip import DecentralisedSGD, gossip
