"""``python -m backpack_rank VERB ...``, where ``backpack-rank`` is not on PATH."""

from backpack_rank.cli import main

if __name__ == "__main__":
    main()
