"""Bias inside passages (paper 001): rotation, where answers stand, and how far representations know their position."""
