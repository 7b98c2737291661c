"""Descent, a classifier, and rates for large batches."""
