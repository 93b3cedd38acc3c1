"""What the entry scripts do, step by step."""
