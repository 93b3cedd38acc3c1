"""Studies of position bias in passages and in lists."""
