"""Speed and memory, measured against other implementations of the same work."""
