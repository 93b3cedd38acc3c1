"""Train a ranker: ``python train.py [data=...] [model=...] [trainer=gpu]``.

``python train.py --help`` shows examples. The steps are in ``backpack_rank/pipelines/train.py``.
"""

from backpack_rank.commands import entry_point

if __name__ == "__main__":
    entry_point("train")()
