"""Experiments of the four papers about position, and their published tables."""
