"""``python -m backpack_rank VERB ...``, where ``backpack-rank`` is not on PATH."""

from backpack_rank.commands import entry_point

if __name__ == "__main__":
    entry_point("main")()
