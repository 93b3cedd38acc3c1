"""One ranking from several rankings of the same items: exact Kemeny, Borda, reciprocal rank fusion."""
