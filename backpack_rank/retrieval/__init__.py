"""Searching a collection with vectors of its documents."""
