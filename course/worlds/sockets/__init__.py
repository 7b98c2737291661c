"""How bytes move between real processes: over sockets, and through the memory of a node."""
