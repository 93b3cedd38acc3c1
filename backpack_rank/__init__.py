"""Neural ranking with a dial for gender bias: train, rank, turn alpha, measure."""

__version__ = "0.1.0"
