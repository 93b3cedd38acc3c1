"""Control at the representation: which senses carry an attribute, and how much of them stays."""
