"""Drawings that explain: one file for each thing that is drawn, matplotlib axes out."""
