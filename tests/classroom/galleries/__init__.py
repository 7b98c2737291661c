"""Answers to the exercises, one file per notebook: pNN.py has the `GALLERIES` of pNN_name.py."""
