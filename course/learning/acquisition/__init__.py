"""Which rows should be labelled next: scores of confusion, picks by them, what they save."""
