"""What all tests of other libraries share."""

from saved_rankers import saved

__all__ = ["saved"]
