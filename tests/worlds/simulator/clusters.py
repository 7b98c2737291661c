"""Imagined worlds for tests."""

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, Cable
from course.worlds import simulated

ALPHA_S, BETA_S = 5e-6, 1 / 12.5e9  # 5 us a message, 12.5 GB/s
SECOND = Cable("a second", 0.5, 100.0, "made up")  # 1 s a message, 100 bytes a second


def switched(ranks, *, device=FREE, cable=None, **options):
    """`ranks` devices on one switch: n bytes from one to another take ALPHA_S + n BETA_S."""
    cable = cable or Cable("ideal", ALPHA_S / 2, 1 / BETA_S, "made up")
    return simulated(one_switch(ranks, device, cable), **options)


def slowly(ranks, **options):
    """One second a message and one a hundred bytes: easy to work out by hand."""
    return switched(ranks, cable=SECOND, **options)
