"""Train a ranker: ``python train.py [data=...] [model=...] [trainer=gpu]``; ``--help`` shows examples."""

from backpack_rank.cli import train

if __name__ == "__main__":
    train()
