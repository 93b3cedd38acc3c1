"""Collections, first stages, word lists and training lists."""
