"""Learning in one process: real pictures, gradient descent, and what is built on them."""
