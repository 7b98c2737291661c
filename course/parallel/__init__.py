"""Ways to train on many ranks, built on messages and collectives."""
