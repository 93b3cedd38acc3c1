"""Studies of position bias in passages."""
