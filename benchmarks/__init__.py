"""How fast: ratios measured in one run, against what others do on the same machine."""
