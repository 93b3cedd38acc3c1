"""Measures of effectiveness and of gender bias."""
