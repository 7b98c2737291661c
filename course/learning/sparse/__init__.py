"""Sparse codes, dictionaries that are learned for them, and networks that guess them."""
