"""`simulated()`: ranks with clocks of their own on an imagined cluster."""
