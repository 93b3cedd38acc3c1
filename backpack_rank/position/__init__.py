"""Bias by position, in lists and in passages: a part that uses the core, and that the core never
imports.
"""
