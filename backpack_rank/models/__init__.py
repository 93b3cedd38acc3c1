"""Rankers as PyTorch modules."""
