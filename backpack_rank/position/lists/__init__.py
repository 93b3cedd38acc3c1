"""Listwise language models and remedies against position bias in lists."""
