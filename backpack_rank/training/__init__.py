"""Losses and Lightning modules."""
