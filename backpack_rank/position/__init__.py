"""Bias by position, in lists and in passages: it uses the core, which never imports it."""
