"""The four places a collection comes from."""
