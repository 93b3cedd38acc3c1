"""Public collections as the folders that options name: downloaded, built, compared."""
