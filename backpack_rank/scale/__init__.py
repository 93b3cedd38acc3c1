"""Re-ranking of millions of pairs: shards, workers, and a plan on disk."""
