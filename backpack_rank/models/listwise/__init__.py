"""Rankers that see all passages of a list at once, in an order: prompts, language models, HTTP models."""
