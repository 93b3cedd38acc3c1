"""The parts of the package."""

BESIDE_THE_CORE = {"position", "integrations", "serving", "scale"}
"""Rooms that the core never imports: bias by position, and the doors."""
