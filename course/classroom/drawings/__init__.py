"""Drawings that say how a thing is built, each by a function with the name of its file."""
