"""Rank aggregation: Kemeny, Borda, reciprocal rank fusion."""
