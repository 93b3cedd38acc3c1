"""Word lists of an attribute, and texts with its words swapped."""
